package app

import (
	"context"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// part is something that a server consists of. What is nil it does not need.
type part struct {
	metrics prometheus.Collector
	// run works until its context ends. An error of one part ends the server.
	run func(context.Context) error
	// lead is what the elected replica does until its context ends.
	lead func(context.Context)
	// observe gets each finished review.
	observe func(*review.Outcome)
	// details returns lines for /readyz?verbose. One about a problem has "=False".
	details func() []string
	// close gives back what the part holds, after everything has stopped or when the server fails to start.
	close func()
}

// endless is run of a part that does not fail.
func endless(run func(context.Context)) func(context.Context) error {
	return func(ctx context.Context) error {
		run(ctx)
		return nil
	}
}

// add adds a part.
func (w *wiring) add(p part) {
	if p.metrics != nil {
		w.metrics.Registry.MustRegister(p.metrics)
	}
	w.parts = append(w.parts, p)
}

// run serves, and runs all parts, until ctx ends or one fails. Parts run until the last call is answered.
func (w *wiring) run(ctx context.Context, serve func(context.Context) error) error {
	group, serving := errgroup.WithContext(ctx)
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error {
		defer stop()
		return serve(serving)
	})
	for _, p := range w.parts {
		if p.run != nil {
			group.Go(func() error { return p.run(background) })
		}
	}
	return group.Wait()
}

// close closes the parts, the last one first.
func (w *wiring) close() {
	for _, p := range slices.Backward(w.parts) {
		if p.close != nil {
			p.close()
		}
	}
}

// leads returns what the elected replica does.
func (w *wiring) leads() []func(context.Context) {
	var all []func(context.Context)
	for _, p := range w.parts {
		if p.lead != nil {
			all = append(all, p.lead)
		}
	}
	return all
}

// observer returns the observer of finished reviews.
func (w *wiring) observer() func(*review.Outcome) {
	all := []func(*review.Outcome){w.metrics.Review}
	for _, p := range w.parts {
		if p.observe != nil {
			all = append(all, p.observe)
		}
	}
	return func(o *review.Outcome) {
		for _, observe := range all {
			observe(o)
		}
	}
}

// details returns the lines of the parts for /readyz?verbose.
func (w *wiring) details() []string {
	var all []string
	for _, p := range w.parts {
		if p.details != nil {
			all = append(all, p.details()...)
		}
	}
	return all
}

// problems returns the details that are problems.
func (w *wiring) problems() []string {
	return slices.DeleteFunc(w.details(), func(line string) bool {
		name, _, _ := strings.Cut(line, " ")
		return !strings.Contains(name, "=False")
	})
}
