package main

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// seen is what the wire showed of one request.
type seen struct {
	method      string
	path        string
	query       url.Values
	contentType string
	userAgent   string
}

// recorder remembers every request, so that a check can say not only that
// client-go got an answer but also how it asked.
type recorder struct {
	mu   sync.Mutex
	list []seen
}

func (r *recorder) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		r.mu.Lock()
		r.list = append(r.list, seen{
			method:      request.Method,
			path:        request.URL.Path,
			query:       request.URL.Query(),
			contentType: request.Header.Get("Content-Type"),
			userAgent:   request.Header.Get("User-Agent"),
		})
		r.mu.Unlock()
		return next.RoundTrip(request)
	})
}

// of returns the requests with this method whose path ends like this.
func (r *recorder) of(method, pathSuffix string) []seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []seen
	for _, s := range r.list {
		if s.method == method && strings.HasSuffix(s.path, pathSuffix) {
			found = append(found, s)
		}
	}
	return found
}

// by returns the requests of one user agent.
func (r *recorder) by(userAgent string) []seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []seen
	for _, s := range r.list {
		if s.userAgent == userAgent {
			found = append(found, s)
		}
	}
	return found
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	return f(request)
}
