package template_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/template"
)

// done is a context whose time is over.
func done(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestCondition(t *testing.T) {
	t.Parallel()
	s := scope(t)
	for name, tc := range map[string]struct {
		expression string
		want       bool
		err        string // "" for none
		usesPod    bool
	}{
		"true":                   {expression: `pod.metadata.labels["app"] == "web"`, want: true, usesPod: true},
		"false":                  {expression: `pod.spec.containers.exists(c, c.name == "proxy")`, usesPod: true},
		"namespace":              {expression: `namespace.metadata.name == "shop" && namespace.metadata.labels.team == "a"`, want: true},
		"a parameter":            {expression: `params.on`, want: true},
		"parameters and presets": {expression: `params.count > 2 && presets.mesh["address"].contains("mesh")`, want: true},
		"absent field":           {expression: `has(pod.spec.hostPID) && pod.spec.hostPID`, usesPod: true},
		"one true is enough":     {expression: `pod.spec.hostPID || true`, want: true, usesPod: true},
		"an error":               {expression: `pod.spec.hostPID`, err: `spec.match.matchConditions[0].expression: "pod.spec.hostPID" fails: no such key: hostPID`, usesPod: true},
		"constant":               {expression: `true`, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, found := s.Condition("spec.match.matchConditions[0].expression", tc.expression)
			if len(found) > 0 {
				t.Fatal(found)
			}
			got, err := c.Eval(input(t, s, nil))
			if got != tc.want || (err == nil) != (tc.err == "") || err != nil && err.Error() != tc.err {
				t.Errorf("got %v, %v", got, err)
			}
			if c.UsesPod() != tc.usesPod {
				t.Errorf("UsesPod() = %v", c.UsesPod())
			}
			in := input(t, s, nil)
			in.Context = done(t)
			if _, err := c.Eval(in); name != "a parameter" && !errors.Is(err, template.ErrCouldNotTell) {
				t.Errorf("without time: %v", err)
			}
		})
	}
}

func TestConditionFindings(t *testing.T) {
	t.Parallel()
	s := scope(t)
	for name, tc := range map[string]struct{ expression, want string }{
		"no boolean":    {`pod.metadata.name`, `c: "pod.metadata.name" is a string, expected a boolean`},
		"not known":     {`dyn(pod.metadata.name)`, `c: "dyn(pod.metadata.name)" has a type that is not known before there is a pod, expected a boolean (hint: compare it, as in "… == true")`},
		"empty":         {" ", `c: the expression is empty`},
		"a placeholder": {`${pod.spec.hostPID}`, `c: "${pod.spec.hostPID}" is a placeholder, expected an expression (hint: leave out ${ and })`},
	} {
		c, found := s.Condition("c", tc.expression)
		if got := lines(found); c != nil || got != tc.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, tc.want)
		}
	}
}
