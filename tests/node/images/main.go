// Stand-ins for the containers of an environment, in one program. Its name selects the part.
//
// They have the start, probes, files, ports and signals of contracts/, but do no inference. Each logs its events as lines
// of JSON to standard output.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// python is a real interpreter, next to its stand-in.
const python = "/opt/python/bin/python3"

func main() {
	arguments := os.Args[1:]
	switch filepath.Base(os.Args[0]) {
	case "tritonserver":
		triton(arguments)
	case "python":
		switch {
		case len(arguments) > 0 && arguments[0] == "-c": // a program of a test in the proxy's image
			fail("no Python: %v", syscall.Exec(python, append([]string{python}, arguments...), os.Environ()))
		case slices.Equal(arguments, []string{"-m", "tidegate_proxy"}):
			proxy()
		case slices.Equal(arguments, []string{"-m", "tidegate_eviction", "serve"}):
			policy()
		default:
			fail("there is no such module: %q", arguments)
		}
	case "caller":
		caller(arguments)
	default: // the container with a pod's namespaces
		<-terminated()
	}
}

// note logs an event.
func note(event string, details map[string]any) {
	line := map[string]any{"event": event, "at": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00")}
	for name, value := range details {
		line[name] = value
	}
	text, _ := json.Marshal(line)
	fmt.Println(string(text))
}

func fail(format string, values ...any) {
	note("failed", map[string]any{"why": fmt.Sprintf(format, values...)})
	os.Exit(1)
}

func terminated() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	return signals
}

// wait returns on SIGTERM, or never if the container ignores it.
func wait() {
	<-terminated()
	note("sigterm", nil)
	if stubborn.Load() {
		select {}
	}
}

var hung, stubborn atomic.Bool

// faults serves requests of tests that break this container from inside its pod.
func faults(mux *http.ServeMux) {
	mux.HandleFunc("POST /stand-in/hang", func(http.ResponseWriter, *http.Request) { note("hung", nil); hung.Store(true) })
	mux.HandleFunc("POST /stand-in/ignore-sigterm", func(http.ResponseWriter, *http.Request) { stubborn.Store(true) })
	mux.HandleFunc("POST /stand-in/crash", func(http.ResponseWriter, *http.Request) { note("crash", nil); os.Exit(3) })
}

// answer returns a handler with status 200 if the condition is true, else 503.
func answer(condition func() bool) http.HandlerFunc {
	return func(writer http.ResponseWriter, _ *http.Request) {
		if hung.Load() || !condition() {
			writer.WriteHeader(http.StatusServiceUnavailable)
		}
	}
}

func always() bool { return true }

// since returns a condition that is true from a time on.
func since(start time.Time, seconds float64) func() bool {
	return func() bool { return time.Since(start).Seconds() >= seconds }
}

func serve(port string, handler http.Handler) *http.Server {
	server := &http.Server{Addr: ":" + port, Handler: handler}
	go func() {
		if err := server.ListenAndServe(); err != http.ErrServerClosed {
			fail("port %s: %v", port, err)
		}
	}()
	return server
}

func reply(writer http.ResponseWriter, value any) {
	writer.Header().Set("Content-Type", "application/json")
	json.NewEncoder(writer).Encode(value)
}

func hostName() string {
	name, _ := os.Hostname()
	return name
}
