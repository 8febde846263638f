package sidecar_test

import (
	"strings"
	"testing"
)

// says returns a pod with a word.
func says(word string) string {
	return `metadata: {annotations: {sidecar.gatehouse.dev/inject: "` + word + `"}}`
}

// namespaceSays returns a namespace with a word.
func namespaceSays(word string) string {
	return `annotations: {sidecar.gatehouse.dev/inject: "` + word + `"}`
}

// TestWord says what the words of pods and namespaces mean: the pod's beats the
// namespace's, and that the profile's default.
func TestWord(t *testing.T) {
	t.Parallel()
	const (
		field   = "refused: metadata.annotations[sidecar.gatehouse.dev/inject]: "
		ignored = `warning: the annotation sidecar.gatehouse.dev/inject of namespace "shop" is ignored: `
		allowed = `must be "true", "false", or names of profiles, with a minus to decline: "mesh,-logs"`
		refused = "logs=refused,mesh=refused"
		usual   = "logs=applied,mesh=not-asked"
	)
	for _, tc := range []struct {
		name, pod, namespace string // "-" for no word
		reasons, says        string
	}{
		{name: "silence", pod: "-", namespace: "-", reasons: usual},

		{name: "pod: true", pod: "true", namespace: "-", reasons: "logs=applied,mesh=applied"},
		{name: "pod: false", pod: "false", namespace: "-", reasons: "logs=declined,mesh=declined"},
		{name: "pod: a name", pod: "mesh", namespace: "-", reasons: "logs=applied,mesh=applied"},
		{name: "pod: a list with space", pod: " mesh , -logs ", namespace: "-", reasons: "logs=declined,mesh=applied"},
		{name: "pod: a name twice", pod: "mesh,mesh", namespace: "-", reasons: "logs=applied,mesh=applied"},

		{name: "namespace: true", pod: "-", namespace: "true", reasons: "logs=applied,mesh=applied"},
		{name: "namespace: false", pod: "-", namespace: "false", reasons: "logs=declined-by-namespace,mesh=declined-by-namespace"},

		{name: "pod asks for one, namespace false", pod: "mesh", namespace: "false", reasons: "logs=declined-by-namespace,mesh=applied"},

		{name: "unknown name", pod: "mash", namespace: "-", reasons: refused, says: field + `"mash" is not the name of a sidecar profile: ` + allowed + ` (hint: did you mean "mesh"?)`},
		{name: "unknown name to decline", pod: "-mash", namespace: "-", reasons: refused, says: field + `"mash" is not the name of a sidecar profile: ` + allowed + ` (hint: did you mean "mesh"?)`},
		{name: "nothing like it", pod: "yes", namespace: "-", reasons: refused, says: field + `"yes" is not the name of a sidecar profile: ` + allowed + ` (hint: did you mean "true"?)`},
		{name: "contradiction", pod: "mesh,-mesh", namespace: "-", reasons: refused, says: field + `"mesh,-mesh" both requests "mesh" and declines it`},
		{name: "empty", pod: "", namespace: "-", reasons: refused, says: field + `"" is invalid: ` + allowed},
		{name: "an empty part", pod: "mesh,,-logs", namespace: "-", reasons: refused, says: field + `"mesh,,-logs" is invalid: ` + allowed},
		{name: "a trailing comma", pod: "mesh,", namespace: "-", reasons: refused, says: field + `"mesh," is invalid: ` + allowed},
		{name: "a minus alone", pod: "-", namespace: "", reasons: usual, says: ignored + `"" is invalid: ` + allowed},
		{name: "true in a list", pod: "mesh,true", namespace: "-", reasons: refused, says: field + `"mesh,true" is invalid: ` + allowed},
		{name: "false to decline", pod: "-false", namespace: "-", reasons: refused, says: field + `"-false" is invalid: ` + allowed},
		{name: "in capitals", pod: "TRUE", namespace: "-", reasons: refused, says: field + `"TRUE" is not the name of a sidecar profile: ` + allowed + ` (hint: did you mean "true"?)`},
		{name: "long", pod: strings.Repeat("x", 300), namespace: "-", reasons: refused, says: field + `"` + strings.Repeat("x", 64) + `…" is not the name of a sidecar profile: ` + allowed},
		{name: "longer than any word", pod: strings.Repeat("mesh,", 4000), namespace: "-", reasons: refused, says: field + "the value has 20000 bytes, at most 16384 are allowed: " + allowed},

		{name: "unknown name on the namespace", pod: "-", namespace: "mash", reasons: usual, says: ignored + `"mash" is not the name of a sidecar profile: ` + allowed},
		{name: "contradiction on the namespace", pod: "mesh", namespace: "mesh,-mesh", reasons: "logs=applied,mesh=applied", says: ignored + `"mesh,-mesh" both requests "mesh" and declines it`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			pod, namespace := "metadata: {name: x}", ""
			if tc.pod != "-" {
				pod = says(tc.pod)
			}
			if tc.namespace != "-" {
				namespace = namespaceSays(tc.namespace)
			}
			set := compileIn(t, shop(t, namespace), spec("logs", "{}", "OptOut"), spec("mesh", "{}", "OptIn"))
			d, _ := inject(t, set, pod)
			check(t, "reasons", reasons(&d), tc.reasons)
			check(t, "said", said(&d), tc.says)
		})
	}
}

// TestWordToRollout: a profile in its rollout answers to the name of the one
// whose place it takes, and to its own first.
func TestWordToRollout(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ word, namespace, reasons string }{
		{"mesh", "-mesh", "canary=applied,mesh=replaced"},
		{"-mesh", "mesh", "canary=declined,mesh=declined"},
		{"canary", "-mesh", "canary=applied,mesh=declined-by-namespace"},
		{"-canary", "mesh", "canary=declined,mesh=applied"},
		{"mesh,-canary", "false", "canary=declined,mesh=applied"},
		{"canary,-mesh", "false", "canary=applied,mesh=declined"},
		{"true", "false", "canary=applied,mesh=replaced"},
		{"false", "true", "canary=declined,mesh=declined"},
	} {
		t.Run(tc.word, func(t *testing.T) {
			t.Parallel()
			canary := strings.Replace(spec("canary", "{}", "OptIn"), "spec:\n", "spec:\n  rollout: {percent: 100, replaces: mesh}\n", 1)
			set := compileIn(t, shop(t, namespaceSays(tc.namespace)), spec("mesh", "{}", "OptIn"), canary)
			d, _ := inject(t, set, says(tc.word))
			check(t, "reasons", reasons(&d), tc.reasons)
			check(t, "said", said(&d), "")
		})
	}
}
