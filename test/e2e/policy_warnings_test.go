package e2e

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A text with what changes how a terminal shows it, or breaks a header, and what becomes of it.
const (
	controls = "a\tb\x1b[31mc\ad\u0085e\u202ef \"g\" \\h"
	printed  = `a b [31mc d e f "g" \h`
)

// verboseRules is how many rules a verbose policy has.
const verboseRules = 30

// verbosePolicy is a policy with many rules that each take their message from the object.
func verbosePolicy(name, actions string) string {
	text := fmt.Sprintf(`---
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: %s}
spec:
  validationActions: [%s]
  matchConstraints:
    objectSelector: {matchLabels: {beyond: %[1]s}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  auditAnnotations: [{key: size, valueExpression: string(object.data.size())}]
  validations:
`, name, actions)
	for i := range verboseRules {
		text += fmt.Sprintf("  - {expression: \"!('w%02[1]d' in object.data)\", messageExpression: string(object.data.w%02[1]d)}\n", i)
	}
	return text
}

// talk is the data of a ConfigMap by which a policy says n things, and these with what stands before each.
func talk(prefix string, n, size int) (data, said []string) {
	for i := range n {
		text := fmt.Sprintf("%02d", i) + strings.Repeat("é", size)
		data, said = append(data, fmt.Sprintf("w%02d=%s", i, text)), append(said, prefix+text)
	}
	return data, said
}

// refusals arrive, whatever is in them, and say how much of them is left out.
func (b *beyond) refusals(t *testing.T) {
	const prefix = "AdmissionPolicy 'verbose' denied request: "
	refused := func(data ...string) string {
		_, text, _ := strings.Cut(b.create(t, "verbose", "x", true, data...).Error(), byWebhook)
		return text
	}
	if got := refused("w00=" + controls); got != prefix+printed {
		t.Errorf("got %q", got)
	}
	data, said := talk(prefix, verboseRules, 300)
	lines := strings.Split(refused(data...), "\n")
	if want := fmt.Sprintf("%d violations:", verboseRules); lines[0] != want || len(lines) < 5 {
		t.Fatalf("got %q, want %q", lines, want)
	}
	shown := lines[1 : len(lines)-1]
	for i, line := range shown {
		if line != fmt.Sprintf("%d. %s", i+1, said[i]) {
			t.Errorf("line %d is %q", i, line)
		}
	}
	if last, want := lines[len(lines)-1], fmt.Sprintf("… and %d more", verboseRules-len(shown)); last != want {
		t.Errorf("got %q, want %q", last, want)
	}
}

// warnings arrive, whatever is in them: the API server drops those that it cannot write, and those beyond its limit for
// all of an answer.
func (b *beyond) warnings(t *testing.T) {
	const prefix = "Validation failed for AdmissionPolicy 'chatty': "
	short, shortWarnings := talk(prefix, 10, 100)
	long, longWarnings := talk(prefix, 4, 2000)
	many, manyWarnings := talk(prefix, verboseRules, 300)
	for _, c := range []struct {
		name string
		data []string
		want []string
	}{
		{"controls", []string{"w00=" + controls}, []string{prefix + printed}},
		{"short", short, shortWarnings},
		{"long", long, longWarnings},
		{"many", many, manyWarnings},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			client, warnings := b.impersonating(t, nil)
			_, err := client.CoreV1().ConfigMaps(beyondNamespace).Create(t.Context(), configMap("warned-"+c.name, map[string]string{"beyond": "chatty"}, c.data...), metav1.CreateOptions{})
			must(t, err)
			err = sayAll(warnings(), c.want)
			if err != nil {
				t.Error(err)
			}
			b.auditNotes(t, "create", "warned-"+c.name, failing+"chatty_size", is(fmt.Sprint(len(c.data))))
			b.auditNotes(t, "create", "warned-"+c.name, failing+"validation_failure", func(value string) bool {
				return value != "" && utf8.ValidString(value)
			})
		})
	}
}

// sayAll returns an error unless all warnings have come: long ones may be cut, and the last may be the number of those
// that have not.
func sayAll(got, want []string) error {
	for i, warning := range got {
		if i == len(got)-1 && len(got) < len(want) {
			if rest := fmt.Sprintf("and %d more warnings", len(want)-i); !strings.Contains(warning, rest) {
				return fmt.Errorf("behind %d of %d warnings there is %q, want %q", i, len(want), warning, rest)
			}
			return nil
		}
		begin, cut := strings.CutSuffix(warning, "…")
		if i >= len(want) || warning != want[i] && (!cut || !strings.HasPrefix(want[i], begin) || utf8.RuneCountInString(warning) < 200) {
			return fmt.Errorf("warning %d of %d is %q", i, len(got), warning)
		}
	}
	if len(got) < len(want) {
		return fmt.Errorf("got %d warnings, want %d", len(got), len(want))
	}
	return nil
}
