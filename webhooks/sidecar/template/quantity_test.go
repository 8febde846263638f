package template_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/template"
)

// TestHugeQuantities: comparing a quantity with a huge exponent takes minutes that
// nothing ends. An expression that makes no quantities does not mind.
func TestHugeQuantities(t *testing.T) {
	t.Parallel()
	const compares = `pod.spec.containers.all(c, quantity(string(c.resources.limits["memory"])).isLessThan(quantity("1Gi")))`
	for name, tc := range map[string]struct {
		expression, memory string
		cannotDecide       bool
	}{
		"a plain one":                   {compares, "64Mi", false},
		"an exponent":                   {compares, "1e6", false},
		"a huge one":                    {compares, "1e2147483647", true},
		"a huge one, in capitals":       {compares, "1.5E+999", true},
		"nothing that looks at numbers": {`pod.metadata.labels["app"] == "web"`, "1e2147483647", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scope(t)
			c, found := s.Condition("x", tc.expression)
			if len(found) > 0 {
				t.Fatal(found)
			}
			in := &template.Input{Pod: []byte(strings.ReplaceAll(`{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"resources":{"limits":{"memory":"M"}}}]}}`, `"M"`, `"`+tc.memory+`"`))}
			if _, err := c.Eval(in); errors.Is(err, template.ErrCannotDecide) != tc.cannotDecide {
				t.Errorf("got %v", err)
			}
		})
	}
}
