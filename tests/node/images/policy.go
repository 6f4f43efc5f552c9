package main

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"os"
	"time"
)

const (
	controlSecret    = "/run/tidegate/control/secret"
	evictionSettings = "/etc/tidegate/eviction/eviction.json"
	evictionState    = "/var/lib/tidegate/footprints.json"
	secretAfter      = 2 // seconds, so that a test can see Triton wait for it
)

// policy creates the control secret when the pod starts. A restarted policy keeps it.
func policy() {
	mux := http.NewServeMux()
	faults(mux)
	mux.HandleFunc("GET /startedz", answer(func() bool { _, err := os.Stat(controlSecret); return err == nil }))
	mux.HandleFunc("GET /healthz", answer(always))
	mux.HandleFunc("GET /metrics", func(http.ResponseWriter, *http.Request) {})
	serve("8091", mux)
	serve("8090", http.NewServeMux())

	var settings struct {
		CapacityBytes int64 `json:"capacityBytes"`
	}
	text, err := os.ReadFile(evictionSettings)
	if err != nil || json.Unmarshal(text, &settings) != nil {
		fail("settings: %v", err)
	}
	if err := os.WriteFile(evictionState, []byte("{}"), 0o600); err != nil {
		fail("state: %v", err)
	}
	note("started", map[string]any{"capacityBytes": settings.CapacityBytes})
	if _, err := os.Stat(controlSecret); err != nil {
		time.Sleep(secretAfter * time.Second)
		if err := os.WriteFile(controlSecret+".new", []byte(rand.Text()), 0o400); err != nil {
			fail("secret: %v", err)
		}
		if err := os.Rename(controlSecret+".new", controlSecret); err != nil {
			fail("secret: %v", err)
		}
		note("secret", nil)
	}
	wait()
	note("exit", nil)
}
