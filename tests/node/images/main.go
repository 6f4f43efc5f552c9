// Stand-ins for the containers of an environment, in one program: it plays the part that it is called by.
//
// They keep what contracts/ promises of start, probes, files, ports and signals, and do no inference. Each writes what
// happens to it as a line of JSON to standard output.
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

// python is a real interpreter, beside the stand-in that plays its part.
const python = "/opt/python/bin/python3"

func main() {
	arguments := os.Args[1:]
	switch filepath.Base(os.Args[0]) {
	case "tritonserver":
		triton(arguments)
	case "python":
		switch {
		case len(arguments) > 0 && arguments[0] == "-c": // what tests run in the proxy's image
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
	default: // the container that holds a pod's namespaces
		<-terminated()
	}
}

// note writes down that something happened.
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

// wait returns when the container is told to stop, or never when it was told to ignore that.
func wait() {
	<-terminated()
	note("sigterm", nil)
	if stubborn.Load() {
		select {}
	}
}

var hung, stubborn atomic.Bool

// faults lets a test break this container from inside its pod.
func faults(mux *http.ServeMux) {
	mux.HandleFunc("POST /stand-in/hang", func(http.ResponseWriter, *http.Request) { note("hung", nil); hung.Store(true) })
	mux.HandleFunc("POST /stand-in/ignore-sigterm", func(http.ResponseWriter, *http.Request) { stubborn.Store(true) })
	mux.HandleFunc("POST /stand-in/crash", func(http.ResponseWriter, *http.Request) { note("crash", nil); os.Exit(3) })
}

// answer returns a handler that says 200 when the condition holds, else 503.
func answer(condition func() bool) http.HandlerFunc {
	return func(writer http.ResponseWriter, _ *http.Request) {
		if hung.Load() || !condition() {
			writer.WriteHeader(http.StatusServiceUnavailable)
		}
	}
}

func always() bool { return true }

// since returns a condition that holds from a time on.
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
