package testrunner

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// configured reads that configuration, and the cases of a test.
func configured(t *testing.T, test string) (*config.Config, []*Case) {
	t.Helper()
	dir := write(t, map[string]string{"test.yaml": test})
	c, err := config.Load("testdata")
	if err != nil {
		t.Fatal(err)
	}
	all, found := Load([]string{filepath.Join(dir, "test.yaml")})
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return c, all
}

const configMap = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"

// TestWhatTestsMayName has names that no policy and no rule has, and such that
// only look so.
func TestWhatTestsMayName(t *testing.T) {
	t.Parallel()
	// expecting is a test with one case that expects this violation.
	expecting := func(policies, violation string) string {
		return head + "metadata: {name: t}\n" + policies + "\ncases: [{name: c, object: " + configMap + ", expect: {violations: [" + violation + "]}}]\n"
	}
	const at = "Test/t: cases[0].expect.violations[0]."
	for name, c := range map[string]struct{ text, want string }{
		"policy and rule":             {expecting("", `{policy: image-registries, rule: "validations[1]"}`), ""},
		"another rule of a twin":      {expecting("", `{policy: twin, rule: "validations[0]"}`), ""},
		"annotation":                  {expecting("", `{policy: image-registries, rule: "auditAnnotations[0]"}`), ""},
		"conditions":                  {expecting("", `{policy: twin, rule: matchConditions}`), ""},
		"check of a standard":         {expecting("", `{policy: standard, rule: podSecurity.hostPorts}`), ""},
		"standard as a whole":         {expecting("", `{policy: standard, rule: podSecurity}`), ""},
		"no rule":                     {expecting("", `{policy: twin, rule: ""}`), ""},
		"rule of any policy":          {expecting("", `{rule: podSecurity.hostPorts}`), ""},
		"injection":                   {expecting("", `{rule: injection}`), ""},
		"profile":                     {expecting("policies: []", `{policy: logs, rule: injection}`), ""},
		"injection for no profile":    {expecting("", `{policy: "", rule: injection}`), ""},
		"misspelt policy":             {expecting("", `{policy: image-registry}`), at + `policy: there is no policy "image-registry" (hint: did you mean "image-registries"?)`},
		"misspelt profile":            {expecting("", `{policy: log}`), at + `policy: there is no policy "log" (hint: did you mean "logs"?)`},
		"unlike any policy":           {expecting("", `{policy: something-else}`), at + `policy: there is no policy "something-else"`},
		"policy of another test":      {expecting("policies: [standard]", `{policy: image-registries}`), at + `policy: "image-registries" is no policy that this test is about, so it is not evaluated (hint: name it in policies, too)`},
		"no such validation":          {expecting("", `{policy: image-registries, rule: "validations[2]"}`), at + `rule: policy "image-registries" has no rule "validations[2]" (hint: there are auditAnnotations[0], matchConditions, validations[0], validations[1])`},
		"validations without number":  {expecting("", `{policy: twin, rule: validations}`), at + `rule: policy "twin" has no rule "validations" (hint: did you mean "validations[0]"?)`},
		"misspelt check":              {expecting("", `{policy: standard, rule: podSecurity.hostPort}`), at + `rule: policy "standard" has no rule "podSecurity.hostPort" (hint: did you mean "podSecurity.hostPorts"?)`},
		"check of no standard":        {expecting("", `{policy: image-registries, rule: podSecurity.hostPorts}`), at + `rule: policy "image-registries" has no rule "podSecurity.hostPorts" (hint: there are auditAnnotations[0], matchConditions, validations[0], validations[1])`},
		"policy's injection":          {expecting("", `{policy: standard, rule: injection}`), at + `rule: policy "standard" has no rule "injection" (hint: there are matchConditions, podSecurity)`},
		"rule of no policy":           {expecting("", `{rule: "validations[7]"}`), at + `rule: no policy has a rule "validations[7]" (hint: there are auditAnnotations[0], injection, matchConditions, podSecurity, validations[0], validations[1])`},
		"rule of none of these":       {expecting("policies: [twin, standard]", `{rule: "validations[0]"}`), `Test/t: policies[0]: "twin" is the name of two policies (hint: write AdmissionPolicy/twin or ValidatingAdmissionPolicy/twin)`},
		"about a misspelt policy":     {expecting("policies: [standard, image-registry]", `{policy: standard}`), `Test/t: policies[1]: there is no policy "image-registry" (hint: did you mean "image-registries"?)`},
		"about a misspelt kind":       {expecting("policies: [AdmissonPolicy/standard]", `{message: m}`), `Test/t: policies[0]: there is no policy "AdmissonPolicy/standard" (hint: did you mean "standard"?)`},
		"about a policy of that kind": {expecting("policies: [ValidatingAdmissionPolicy/standard]", `{message: m}`), `Test/t: policies[0]: there is no policy "ValidatingAdmissionPolicy/standard" (hint: did you mean "standard"?)`},
		"about a profile":             {expecting("policies: [logs]", `{message: m}`), `Test/t: policies[0]: there is no policy "logs"`},
		"about a policy twice":        {expecting("policies: [standard, AdmissionPolicy/standard]", `{message: m}`), `Test/t: policies[1]: "AdmissionPolicy/standard" is given twice`},
		"about nothing with a name":   {expecting(`policies: ["", standard]`, `{message: m}`), `Test/t: policies[0]: there is no policy ""`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read, all := configured(t, c.text)
			got := ""
			found := NewNames(&read.Policy, &read.Mutation, read.Sidecar.Profiles).Check(all)
			if err := found.Err(); err != nil {
				_, got, _ = strings.Cut(err.Error(), "test.yaml: ")
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
