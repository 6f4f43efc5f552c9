package main

import (
	"io"
	"net/http"
	"strings"
	"time"
)

// caller sends a request every few milliseconds until it is stopped, each over a connection of its own, and writes
// down every answer that is not 200, and now and then how many were.
func caller(arguments []string) {
	stop := terminated()
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answered, by, told := 0, map[string]int{}, time.Now()
	for tick := time.Tick(10 * time.Millisecond); ; {
		select {
		case <-stop:
			note("exit", nil)
			return
		case <-tick:
		}
		who, why := call(client, arguments[0])
		if why != "" {
			note("lost", map[string]any{"why": why})
		} else {
			answered++
			by[who]++
		}
		if time.Since(told) > 200*time.Millisecond {
			note("answered", map[string]any{"number": answered, "by": by})
			told = time.Now()
		}
	}
}

func call(client *http.Client, url string) (who, why string) {
	answer, err := client.Post(url, "application/json", strings.NewReader("{}"))
	if err != nil {
		return "", err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return "", err.Error()
	}
	if answer.StatusCode != http.StatusOK {
		return "", answer.Status + " " + string(body)
	}
	return answer.Header.Get("Proxied-By"), ""
}
