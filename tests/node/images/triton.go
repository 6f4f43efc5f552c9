package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	liveAfter = 2 // seconds until it responds
	drain     = 1 // seconds to finish calls in progress
)

// triton serves health and metrics, and refuses model control without the secret of its command line.
func triton(arguments []string) {
	start := time.Now()
	values := map[string]string{}
	shown := []string{}
	for _, argument := range arguments {
		name, value, _ := strings.Cut(strings.TrimPrefix(argument, "--"), "=")
		values[name] = value
		if strings.Contains(name, "restricted") {
			protocols, _, _ := strings.Cut(value, "=")
			argument = fmt.Sprintf("--%s=%s=***", name, protocols)
		}
		shown = append(shown, argument)
	}
	restricted, secret, _ := strings.Cut(values["http-restricted-api"], "=")
	_, header, _ := strings.Cut(restricted, ":")
	if secret == "" {
		fail("no secret restricts the control protocols")
	}
	models, err := os.ReadDir(values["model-repository"])
	if err != nil {
		fail("model repository: %v", err)
	}
	readyAfter, _ := strconv.ParseFloat(os.Getenv("STAND_IN_READY_SECONDS"), 64)
	note("started", map[string]any{"arguments": shown, "home": os.Getenv("HOME"), "models": len(models)})

	mux := http.NewServeMux()
	faults(mux)
	mux.HandleFunc("GET /v2/health/live", answer(since(start, liveAfter)))
	mux.HandleFunc("GET /v2/health/ready", answer(since(start, readyAfter)))
	mux.HandleFunc("POST /v2/repository/index", func(writer http.ResponseWriter, request *http.Request) {
		if request.Header.Get(header) != secret {
			http.Error(writer, `{"error":"This API is restricted"}`, http.StatusForbidden)
			return
		}
		reply(writer, []string{})
	})
	mux.HandleFunc("POST /v2/models/{model}/infer", func(writer http.ResponseWriter, request *http.Request) {
		reply(writer, map[string]any{"model_name": request.PathValue("model"), "served_by": hostName()})
	})
	metrics := http.NewServeMux()
	metrics.HandleFunc("GET /metrics", func(writer http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(writer, "nv_inference_request_success 0")
	})
	server := serve(values["http-port"], mux)
	serve(values["grpc-port"], http.NewServeMux())
	serve(values["metrics-port"], metrics)

	wait()
	time.Sleep(drain * time.Second)
	server.Shutdown(context.Background())
	note("exit", nil)
}
