package configuration

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster"
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

// TestMissingParamsAreLoggedOnce: by the line that names what is denied, and no other.
func TestMissingParamsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	s := serveDirectory(t, nil)
	s.log.Take()
	s.change(t, func() {
		s.write(t, "params.yaml", strings.Replace(policyDocument("limited"), "validationActions: [Deny]", "paramKind: {apiVersion: v1, kind: ConfigMap}", 1)+`
---
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicyBinding
metadata: {name: limited}
spec: {policyName: limited, validationActions: [Deny], paramRef: {name: limits, namespace: shop, parameterNotFoundAction: Deny}}
`)
	})
	s.checkParams()
	if text := s.log.Take(); strings.Count(text, "limits") != 1 || strings.Count(text, `there is no ConfigMap \"limits\" in namespace \"shop\"`) != 1 {
		t.Errorf("the log has %s", text)
	}
}

// TestIgnoredDocuments: with a cluster, what is looked up there and stands in the directory too has a warning each.
func TestIgnoredDocuments(t *testing.T) {
	t.Parallel()
	s := serveDirectory(t, nil)
	s.write(t, "namespaces.yaml", `{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: lab}}
`)
	s.write(t, "params.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: limits, namespace: shop}}\n")
	s.write(t, "roles.yaml", "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: reader}, rules: []}\n")
	documents, found := s.Read()
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	s.log.Take()
	s.warnIgnored(documents)
	if text := s.log.String(); text != "" {
		t.Errorf("without a cluster the log has %s", text)
	}
	s.Cluster = new(cluster.Cluster)
	s.warnIgnored(documents)
	text := s.log.Take()
	for _, want := range []string{
		`"source":"namespaces.yaml#1","object":"Namespace/shop"`, `"source":"namespaces.yaml#2","object":"Namespace/lab"`,
		`"source":"params.yaml","object":"ConfigMap/limits"`, `"source":"roles.yaml","object":"ClusterRole/reader"`,
	} {
		if strings.Count(text, want) != 1 {
			t.Errorf("there is no line with %s", want)
		}
	}
	if n := strings.Count(text, "is ignored: with a cluster, params, namespaces and RBAC are read from the cluster"); n != 4 || strings.Count(text, "\n") != 4 {
		t.Errorf("%d of these lines are about ignored documents:\n%s", n, text)
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
	if !strings.Contains(last.Rejected, "red.yaml") || !strings.HasPrefix(last.Rejected, "the configuration is invalid, so the previous one stays active: ") {
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
