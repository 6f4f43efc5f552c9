package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

const routingRoot = "/etc/tidegate/routing/"

type pool struct {
	Name     string `json:"name"`
	Host     string `json:"host"`
	HTTPPort int    `json:"httpPort"`
}

type table struct {
	Environment string `json:"environment"`
	Servers     []struct {
		Name  string `json:"name"`
		Pools []pool `json:"pools"`
	} `json:"servers"`
	Models []struct {
		Name   string `json:"name"`
		Server string `json:"server"`
		Pool   string `json:"pool"`
	} `json:"models"`
}

var routing atomic.Pointer[table]

// follow reads the routing table, and again whenever it has changed.
func follow() {
	before := ""
	for ; ; time.Sleep(100 * time.Millisecond) {
		text, err := os.ReadFile(routingRoot + "routing.json")
		if err != nil || string(text) == before {
			continue
		}
		before = string(text)
		var read table
		if err := json.Unmarshal(text, &read); err != nil {
			note("routing refused", map[string]any{"why": err.Error()})
			continue
		}
		routing.Store(&read)
		names := []string{}
		for _, model := range read.Models {
			names = append(names, model.Name)
		}
		note("routing", map[string]any{"models": names})
	}
}

func (routes *table) poolOf(model string) *pool {
	for _, one := range routes.Models {
		for _, server := range routes.Servers {
			for _, pool := range server.Pools {
				if one.Name == model && one.Server == server.Name && one.Pool == pool.Name {
					return &pool
				}
			}
		}
	}
	return nil
}

// proxy passes calls of a model on to a server of its pool, by the routing table.
func proxy() {
	note("started", map[string]any{"environment": os.Getenv("TIDEGATE_PROXY_ENVIRONMENT")})
	if err := os.WriteFile("/tmp/written", nil, 0o600); err != nil {
		fail("scratch: %v", err)
	}
	go follow()
	routed := func() bool { return routing.Load() != nil }
	admin := http.NewServeMux()
	faults(admin)
	admin.HandleFunc("GET /healthz", answer(always))
	admin.HandleFunc("GET /readyz", answer(routed))
	admin.HandleFunc("GET /metrics", func(http.ResponseWriter, *http.Request) {})
	admin.HandleFunc("GET /stand-in/addresses", addresses)
	serve("8082", admin)
	serve("8081", http.NewServeMux())

	mux := http.NewServeMux()
	mux.HandleFunc("POST /v2/models/{model}/infer", forward)
	server := serve("8080", mux)

	wait()
	server.Shutdown(context.Background()) // takes nothing new, and ends what is under way
	note("exit", nil)
}

// addresses says which addresses the hosts of the routing table and the proxy's own replicas have, as a pod sees them.
func addresses(writer http.ResponseWriter, request *http.Request) {
	hosts := []string{os.Getenv("TIDEGATE_PROXY_REPLICAS_HOST")}
	for _, server := range routing.Load().Servers {
		for _, pool := range server.Pools {
			hosts = append(hosts, pool.Host)
		}
	}
	found := map[string][]string{}
	for _, host := range hosts {
		found[host], _ = net.DefaultResolver.LookupHost(request.Context(), host)
	}
	reply(writer, found)
}

func forward(writer http.ResponseWriter, request *http.Request) {
	pool := routing.Load().poolOf(request.PathValue("model"))
	if pool == nil {
		http.NotFound(writer, request)
		return
	}
	url := fmt.Sprintf("http://%s:%d%s", pool.Host, pool.HTTPPort, request.URL.Path)
	answer, err := http.Post(url, "application/json", request.Body)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	writer.Header().Set("Proxied-By", hostName())
	writer.WriteHeader(answer.StatusCode)
	io.Copy(writer, answer.Body)
}
