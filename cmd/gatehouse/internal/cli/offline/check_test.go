package offline

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report/sarif"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

func TestEffectOf(t *testing.T) {
	t.Parallel()
	const deny, warn, audit = admissionregistrationv1.Deny, admissionregistrationv1.Warn, admissionregistrationv1.Audit
	for name, c := range map[string]struct {
		outcome policy.Outcome
		rule    string
		actions []admissionregistrationv1.ValidationAction
		want    checkEffect
	}{
		"deny":                           {policy.Violated, "validations[0]", []admissionregistrationv1.ValidationAction{audit, deny}, effectDenied},
		"warn":                           {policy.Violated, "validations[0]", []admissionregistrationv1.ValidationAction{warn, audit}, effectWarned},
		"audit":                          {policy.Violated, "validations[0]", []admissionregistrationv1.ValidationAction{audit}, effectAudited},
		"failed with warn":               {policy.Failed, "validations[0]", []admissionregistrationv1.ValidationAction{warn}, effectWarned},
		"failed altogether":              {policy.Failed, "", nil, effectDenied},
		"excepted, though it would deny": {policy.Excepted, "validations[0]", []admissionregistrationv1.ValidationAction{deny}, effectExcepted},
		"existing, though it would warn": {policy.Existing, "validations[0]", []admissionregistrationv1.ValidationAction{warn}, effectExisting},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := effectOf(&policy.Violation{Outcome: c.outcome, Rule: c.rule, Actions: c.actions}); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestCheckTakesTime: an object of JUnit's report has the time that deciding about it took.
func TestCheckTakesTime(t *testing.T) {
	t.Parallel()
	f := evaluatorFlags{manifestFlags: manifestFlags{configFlag: configFlag{"testdata/sidecars"}, namespace: "default"}}
	e, err := f.evaluator(t.Context(), cli.Streams{
		In: strings.NewReader("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}"),
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	var now time.Time
	report, err := newCheckReport(t.Context(), e, cli.NewLiveLine(io.Discard), func() time.Time {
		now = now.Add(2 * time.Millisecond)
		return now
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range report.junit()[0].Cases {
		if c.Elapsed != 2*time.Millisecond {
			t.Errorf("%s took %s", c.Name, c.Elapsed)
		}
	}
}

// sarifOf is the log of a report on one object with every kind of remark.
func sarifOf(line int) *sarif.Log {
	violation := func(rule string, effect checkEffect, template string) checkedViolation {
		return checkedViolation{Effect: effect, Line: line + 3, Violation: policy.Violation{
			Kind: "AdmissionPolicy", Policy: "p", Rule: rule, Template: template, Message: "is wrong", Exception: "ops/x",
		}}
	}
	c := &checked{
		place: place{File: "a.yaml", Kind: "Pod", Namespace: "shop", Name: "a"}, Line: line, Verdict: checkRefused,
		Error: "why", Warnings: []string{"look"}, Note: "guess", source: "a.yaml", title: "Pod/a",
		Violations: []checkedViolation{
			violation("podSecurity.x", effectDenied, ""), violation("podSecurity.x", effectDenied, ""),
			violation("podSecurity.x", effectDenied, "spec.template"), violation("", effectWarned, ""),
			violation("validations[0]", effectAudited, ""), violation("validations[1]", effectExcepted, ""), violation("validations[2]", effectExisting, ""),
		},
	}
	found, notifications := (&checkReport{objects: []*checked{c}}).results()
	return &sarif.Log{Results: found.list, Notifications: notifications}
}

func TestCheckSARIF(t *testing.T) {
	t.Parallel()
	log := sarifOf(1)
	var got []string
	for i := range log.Results {
		r := &log.Results[i]
		line := string(r.Level) + " " + r.Rule + " " + r.Message
		if r.Suppressed != "" {
			line += " (" + r.Suppressed + ")"
		}
		got = append(got, line)
	}
	want := []string{
		"error cannot-decide Pod/a in namespace shop: cannot decide: why",
		"error AdmissionPolicy/p/podSecurity.x Pod/a in namespace shop: is wrong",
		"error AdmissionPolicy/p/podSecurity.x Pod/a in namespace shop: is wrong",
		"error AdmissionPolicy/p/podSecurity.x Pod/a in namespace shop, spec.template: is wrong",
		"warning AdmissionPolicy/p Pod/a in namespace shop: is wrong",
		"note AdmissionPolicy/p/validations[0] Pod/a in namespace shop: is wrong",
		"note AdmissionPolicy/p/validations[1] Pod/a in namespace shop: is wrong (PolicyException ops/x)",
		"note AdmissionPolicy/p/validations[2] Pod/a in namespace shop: is wrong (the object violated the rule before the update, which does not make it worse)",
		"warning warning Pod/a in namespace shop: look",
		"note assumption Pod/a in namespace shop: guess",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if want := []sarif.Notification{{Message: "Pod/a in namespace shop: cannot decide: why", File: "a.yaml", Line: 1}}; !slices.Equal(log.Notifications, want) {
		t.Errorf("notifications are %+v, want %+v", log.Notifications, want)
	}
	// What has moved is the same, and what is not the same differs.
	moved, seen := sarifOf(100), map[string]bool{}
	for i := range log.Results {
		fingerprint := log.Results[i].Fingerprint
		if fingerprint != moved.Results[i].Fingerprint {
			t.Errorf("%s: another fingerprint in another line", got[i])
		}
		if seen[fingerprint] {
			t.Errorf("%s: the fingerprint of another result", got[i])
		}
		seen[fingerprint] = true
	}
}

// TestGuideShowsCheck keeps the files and the output in the guide equal to what is tested.
func TestGuideShowsCheck(t *testing.T) {
	t.Parallel()
	script, files := readScript(t, "check-guide")
	guide := readText(t, "../../../../../docs/check.md")
	for name, content := range files {
		if !strings.HasSuffix(name, ".txt") && !strings.Contains(guide, "```yaml\n"+strings.TrimSpace(content)+"\n```") {
			t.Errorf("the guide does not show %s", name)
		}
	}
	// Each command is followed by the comparison of what it prints.
	lines := strings.Split(script, "\n")
	shown := 0
	for i, line := range lines {
		_, command, ok := strings.Cut(line, "exec gatehouse ")
		if !ok {
			continue
		}
		_, name, ok := strings.Cut(lines[i+1], "cmp stdout ")
		if !ok {
			t.Fatalf("nothing is compared behind %q", line)
		}
		if shown++; !strings.Contains(guide, "```console\n$ gatehouse "+command+"\n"+strings.TrimSpace(files[name])+"\n```") {
			t.Errorf("the guide does not show %q with its output", command)
		}
	}
	if blocks := strings.Count(guide, "```console\n"); shown != blocks {
		t.Errorf("the guide shows %d commands, of which %d are tested", blocks, shown)
	}
}
