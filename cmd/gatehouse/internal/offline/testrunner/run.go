package testrunner

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// Runner decides cases.
type Runner struct {
	// Resources are those of the kinds of objects.
	Resources *request.Resources
	// Compile compiles the configuration for a Variant. It is called once for each that cases need, and not concurrently.
	Compile func(Variant) (*webhooks.Snapshot, error)
	// Workers is how many cases are decided at a time, at least 1.
	Workers int
}

// Result is what became of one case.
type Result struct {
	Case *Case
	Got  Outcome
	// Differences are empty if the case has passed.
	Differences []Difference
	// Stays are rules that Gatehouse decides, because they were not compiled, and Reasons why compiled documents differ. They are set only if
	// the case was run against these, too.
	Stays, Reasons []string
	// Elapsed is what the decision took.
	Elapsed time.Duration
}

// Passed reports whether everything is as expected.
func (r *Result) Passed() bool { return len(r.Differences) == 0 }

// Variant is what a configuration is compiled for.
type Variant struct {
	// Now is the time by which exceptions expire, unless RealTime holds.
	Now      time.Time
	RealTime bool
	// Inject reports whether there are sidecar profiles.
	Inject bool
	// About are the policies that are there, and nil for all.
	About *About
	// Context is laid over that of the configuration, if it is not nil.
	Context *Context
}

// VariantOf returns the Variant for a case.
func VariantOf(c *Case) Variant {
	v := Variant{RealTime: c.Now == nil, Inject: c.Inject, About: c.About, Context: c.Context}
	if c.Now != nil {
		v.Now = c.Now.UTC()
	}
	return v
}

// Check reports cases of which no request can be made, without those of which something is reported already.
func (r *Runner) Check(all []*Case) diagnostic.List {
	var found diagnostic.List
	for _, c := range all {
		if c.broken {
			continue
		}
		if _, err := r.request(c); err != nil {
			found = append(found, c.requestErrors(err)...)
		}
	}
	return found
}

// requestErrors returns the reasons why no request can be made of a case.
func (c *Case) requestErrors(err error) diagnostic.List {
	var found diagnostic.List
	for line := range strings.Lines(err.Error()) {
		f := c.diagnostic(strings.TrimSpace(line))
		if strings.HasPrefix(line, "name: is missing") {
			f.Hint = "objectName is the name of an object that does not say it"
		}
		found = append(found, f)
	}
	return found
}

// Run decides every case. The results are in the order of the cases. The error is a diagnostic.List of cases of which no request
// can be made, or why the work ended early.
func (r *Runner) Run(ctx context.Context, all []*Case) ([]Result, error) {
	requests := make([]admission.Request, len(all))
	var found diagnostic.List
	for i, c := range all {
		var err error
		if requests[i], err = r.request(c); err != nil {
			found = append(found, c.requestErrors(err)...)
		}
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	snapshots := map[Variant]*webhooks.Snapshot{}
	for _, c := range all {
		v := VariantOf(c)
		if snapshots[v] != nil {
			continue
		}
		snapshot, err := r.Compile(v)
		if err != nil {
			return nil, fmt.Errorf("the configuration cannot be compiled for %q: %w", c.Title(), err)
		}
		snapshots[v] = snapshot
	}
	results := make([]Result, len(all))
	var group errgroup.Group
	group.SetLimit(max(1, r.Workers))
	for i, c := range all {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			start := time.Now()
			result := Result{Case: c, Got: r.decide(ctx, snapshots[VariantOf(c)], c, requests[i])}
			result.Elapsed = time.Since(start)
			result.Differences = Judge(&c.Expect, &result.Got)
			results[i] = result
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return results, ctx.Err()
}

// Warnings are about cases whose object is of an unknown kind: policies that name its resource do not match if that was guessed
// wrongly.
func (r *Runner) Warnings(all []*Case) diagnostic.List {
	var found diagnostic.List
	for _, c := range all {
		text := c.Spec.Object
		if len(text) == 0 {
			text = c.Spec.OldObject
		}
		object, err := rawjson.Parse(text)
		if err != nil {
			continue // Run reports it
		}
		kind := schema.FromAPIVersionAndKind(object.Get("apiVersion").Text(), object.Get("kind").Text())
		if as := r.Resources.Of(kind); as.Guessed {
			if req, err := r.request(c); err == nil && req.Operation == admissionv1.Connect {
				continue // its object is the options, and what they are of is known
			}
			f := c.diagnostic(fmt.Sprintf("kind %q of %s is not known: Gatehouse assumes the resource %q, in namespaces",
				strict.Cut(kind.Kind, mostShown), strict.Printable(kind.GroupVersion().String()), strict.Cut(as.Name, mostShown)))
			f.Severity, f.Hint = diagnostic.Warning, "put its CustomResourceDefinition into the --config directory"
			found = append(found, f)
		}
	}
	return found
}

// diagnostic returns an error about the case.
func (c *Case) diagnostic(message string) diagnostic.Diagnostic {
	object := testKind
	if c.Test != c.Source {
		object += "/" + strict.Printable(c.Test)
	}
	return diagnostic.Diagnostic{Severity: diagnostic.Error, Source: c.Source, Object: object, Field: c.Field, Message: message}
}
