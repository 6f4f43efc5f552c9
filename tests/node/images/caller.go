package main

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// caller sends a request every few milliseconds until it is stopped, over new connections or one that it keeps alive. It
// logs every response that is not 200, and now and then the number of those that are. Its arguments are the address, then
// `keep-alive` or headers.
func caller(arguments []string) {
	stop := terminated()
	transport := &http.Transport{DisableKeepAlives: !slices.Contains(arguments, "keep-alive")}
	client := &http.Client{Timeout: 20 * time.Second, Transport: transport}
	answered, by, logged := 0, map[string]int{}, time.Now()
	for tick := time.Tick(10 * time.Millisecond); ; {
		select {
		case <-stop:
			note("exit", nil)
			return
		case <-tick:
		}
		who, why := call(client, arguments)
		if why != "" {
			note("lost", map[string]any{"why": why})
		} else {
			answered++
			by[who]++
		}
		if time.Since(logged) > 200*time.Millisecond {
			note("answered", map[string]any{"number": answered, "by": by})
			logged = time.Now()
		}
	}
}

func call(client *http.Client, arguments []string) (who, why string) {
	request, err := http.NewRequest(http.MethodPost, arguments[0], strings.NewReader("{}"))
	if err != nil {
		return "", err.Error()
	}
	request.Header.Set("Content-Type", "application/json")
	for _, argument := range arguments[1:] {
		if name, value, isHeader := strings.Cut(argument, ": "); isHeader {
			request.Header.Set(name, value)
		}
	}
	answer, err := client.Do(request)
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
