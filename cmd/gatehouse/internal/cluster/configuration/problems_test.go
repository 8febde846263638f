package configuration

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/status"
	"github.com/gatehouse-dev/gatehouse/test/support/logbuffer"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
)

// What lasts has a line, and an Event when it begins and when it is over.
func TestProblems(t *testing.T) {
	t.Parallel()
	var log logbuffer.Buffer
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	var events []string
	p := Problems{Record: func(warning bool, reason, _ string) {
		if warning {
			reason += "!"
		}
		events = append(events, reason)
	}}
	wants := func(what string, lines []string, want ...string) {
		t.Helper()
		got := p.Lines()
		if !slices.EqualFunc(got, lines, strings.Contains) || !slices.Equal(events, want) {
			t.Errorf("%s: the lines are %q, the Events %q", what, got, events)
		}
		events = nil
	}
	p.activate()
	wants("the first configuration", nil)
	p.reject("b.yaml: wrong")
	p.reject("b.yaml: wrong")
	wants("a rejected one", []string{"Configuration=False since "}, "ConfigurationRejected!")
	p.activate()
	wants("a valid one", nil, "ConfigurationActivated")

	missing := []matching.MissingParams{{Kind: "AdmissionPolicyBinding", Binding: "b", Policy: "p", Params: `ConfigMap "limits" in namespace "shop"`}}
	for i, changed := range []bool{true, false} {
		if p.setMissing(logger, missing) != changed {
			t.Errorf("round %d: changed is %t", i, !changed)
		}
	}
	if text := log.Take(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `there is no ConfigMap \"limits\" in namespace \"shop\"`) {
		t.Errorf("the log has %s", text)
	}
	wants("missing params", []string{"Params=False: AdmissionPolicyBinding \"b\" denies what policy \"p\" matches"}, "ParamsNotFound!")
	if b, of, other := p.paramsOf("AdmissionPolicyBinding", "b"), p.paramsOf("AdmissionPolicy", "p"), p.paramsOf("AdmissionPolicy", "b"); len(b) != 1 || len(of) != 1 || len(other) > 0 {
		t.Errorf("the remarks are %q, %q and %q", b, of, other)
	}
	p.setMissing(logger, nil)
	wants("params that exist", nil, "ParamsFound")

	// Where requests were denied is remembered, for a while and not without bound.
	now := time.Now()
	for i := range 2 * maxDenials {
		p.NoteDenied("p/b,q", "shop"+strings.Repeat("x", i), now)
	}
	if got := p.deniedIn(now); len(got) != 1 || len(got["p/b"]) != maxDenials {
		t.Errorf("%d of %d", len(got["p/b"]), len(got))
	}
	if got := p.deniedIn(now.Add(2 * denialLife)); len(got) > 0 {
		t.Errorf("after a while there are %d", len(got))
	}
}

// A rejected directory is in what replicas report, until it is mended.
func TestRejectedIsReported(t *testing.T) {
	t.Parallel()
	resources := &handed{changed: make(chan struct{}, 1)}
	resources.hand(customPolicy(t, 1, "p", "true"))
	s := serveDirectory(t, resources)
	var last status.Report
	s.Report = func(r status.Report) { last = r }
	s.change(t, func() { s.write(t, "red.yaml", "kind: [") })
	if !strings.Contains(last.Rejected, "red.yaml") || !strings.HasPrefix(last.Rejected, "rejected, and the previous one stays active: ") {
		t.Errorf("it reports %q", last.Rejected)
	}
	s.change(t, func() { s.write(t, "red.yaml", policyDocument("red")) })
	if last.Rejected != "" || len(s.Current.Problems.Lines()) > 0 {
		t.Errorf("after the mend, it reports %q", last.Rejected)
	}
	s.keepActive(s.merge(s.documents, s.resources), errors.New("no directory"))
	if !strings.HasSuffix(last.Rejected, "no directory") {
		t.Errorf("it reports %q", last.Rejected)
	}
}
