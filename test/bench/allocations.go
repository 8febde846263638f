package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// allocations are what a process has allocated on Go's heap.
type allocations struct {
	Objects int64 `json:"allocations"`
	Bytes   int64 `json:"allocatedBytes"`
}

func (a allocations) minus(b allocations) allocations {
	return allocations{Objects: a.Objects - b.Objects, Bytes: a.Bytes - b.Bytes}
}

// metering begins to count what a server allocates. The function that it returns
// ends that, and tells. What asking takes, hundreds of objects, is found out by
// asking, and taken off.
func (s *server) metering(ctx context.Context) (func(context.Context) (allocations, error), error) {
	var asked [3]allocations // The first may have to connect, and tells nothing.
	for i := range asked {
		var err error
		if asked[i], err = s.allocations(ctx); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context) (allocations, error) {
		last, err := s.allocations(ctx)
		return last.minus(asked[2]).minus(asked[2].minus(asked[1])), err
	}, nil
}

// allocationsPerRequest are the means over all requests of the samples, and 0 of
// none. It is no median because Go's counters lag behind: they count what a
// processor has allocated when it is done with a piece of memory, or at a
// collection, up to some thousand objects later. Over the rounds that evens out.
func allocationsPerRequest(samples []sample) (objects, bytes float64) {
	var total allocations
	requests := 0
	for _, s := range samples {
		total.Objects += s.Objects
		total.Bytes += s.Bytes
		requests += s.Requests
	}
	if requests == 0 {
		return 0, 0
	}
	return float64(total.Objects) / float64(requests), float64(total.Bytes) / float64(requests)
}

// allocations asks a server what it has allocated since it started.
func (s *server) allocations(ctx context.Context) (allocations, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.operations+"/metrics", http.NoBody)
	if err != nil {
		return allocations{}, err
	}
	response, err := s.operator.RoundTrip(request)
	if err != nil {
		return allocations{}, err
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	_ = response.Body.Close()
	if err != nil {
		return allocations{}, fmt.Errorf("metrics: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return allocations{}, fmt.Errorf("metrics: status %s, body %s", response.Status, excerpt(text))
	}
	return parseAllocations(text)
}

// parseAllocations finds two of the metrics that every Prometheus client of Go
// has.
func parseAllocations(metrics []byte) (allocations, error) {
	var a allocations
	for _, metric := range []struct {
		name  string
		value *int64
	}{{"go_memstats_mallocs_total", &a.Objects}, {"go_memstats_alloc_bytes_total", &a.Bytes}} {
		_, rest, found := bytes.Cut(metrics, []byte("\n"+metric.name+" "))
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		number, err := strconv.ParseFloat(string(line), 64)
		if !found || err != nil {
			return allocations{}, fmt.Errorf("metrics: no %s", metric.name)
		}
		*metric.value = int64(number)
	}
	return a, nil
}
