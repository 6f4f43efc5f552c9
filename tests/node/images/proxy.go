package main

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
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

// follow reads the routing table after each change.
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

// proxy forwards calls of a model to a server of its pool, according to the routing table.
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
	admin.HandleFunc("GET /readyz/servers/{server}", serverReady)
	admin.HandleFunc("GET /metrics", func(http.ResponseWriter, *http.Request) {})
	admin.HandleFunc("GET /stand-in/addresses", addresses)
	serve("8082", admin)
	serve("8081", http.NewServeMux())

	mux := http.NewServeMux()
	mux.HandleFunc("POST /v2/models/{model}/infer", forward)
	server := serve("8080", mux)

	wait()
	server.Shutdown(context.Background()) // accepts no new calls, and finishes calls in progress
	note("exit", nil)
}

// serverReady returns 200 if a replica of a server is ready, 503 with the reason, or 404 for an unknown server.
func serverReady(writer http.ResponseWriter, request *http.Request) {
	name := request.PathValue("server")
	routes := routing.Load()
	if hung.Load() || routes == nil {
		http.Error(writer, "this proxy has no routing table yet", http.StatusServiceUnavailable)
		return
	}
	for _, server := range routes.Servers {
		if server.Name != name {
			continue
		}
		for _, pool := range server.Pools {
			addresses, _ := net.DefaultResolver.LookupHost(request.Context(), pool.Host)
			for _, address := range addresses {
				place := net.JoinHostPort(address, strconv.Itoa(pool.HTTPPort))
				if answer, err := quick.Get("http://" + place + "/v2/health/ready"); err == nil {
					answer.Body.Close()
					if answer.StatusCode == http.StatusOK {
						return
					}
				}
			}
		}
		http.Error(writer, "no replica of "+name+" is ready", http.StatusServiceUnavailable)
		return
	}
	http.Error(writer, "there is no server "+name, http.StatusNotFound)
}

// upstream resolves the server for each call, because a kept connection can lead to a server that is about to stop.
var upstream = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

var quick = &http.Client{Timeout: 2 * time.Second}

// addresses returns the addresses of the routing table's hosts and of the proxy's replicas, resolved in this pod.
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
	addresses, err := net.DefaultResolver.LookupHost(request.Context(), pool.Host)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusBadGateway)
		return
	}
	// It tries only one address, because the tests show that no second attempt is needed.
	place := net.JoinHostPort(addresses[rand.IntN(len(addresses))], strconv.Itoa(pool.HTTPPort))
	url := "http://" + place + request.URL.Path
	answer, err := upstream.Post(url, "application/json", request.Body)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	writer.Header().Set("Proxied-By", hostName())
	writer.WriteHeader(answer.StatusCode)
	io.Copy(writer, answer.Body)
}
