package policy_test

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

const replicasPolicy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: replicas}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: ["apps"], apiVersions: ["v1"], operations: ["CREATE", "UPDATE"], resources: ["deployments"]}
  validations:
  - {expression: "object.spec.replicas <= 5", message: at most 5 replicas}`

const replicasBinding = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: everywhere}
spec: {policyName: replicas, validationActions: [Deny]}`

const ownPolicy = `apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: own}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE"], resources: ["pods"]}
  podSecurity: {level: baseline}
  validationActions: [Deny]`

// repeated is how a golden file writes a letter that is repeated.
var repeated = regexp.MustCompile(`<(.)\*(\d+)>`)

func unfold(text string) string {
	return repeated.ReplaceAllStringFunc(text, func(s string) string {
		parts := repeated.FindStringSubmatch(s)
		n, _ := strconv.Atoi(parts[2])
		return strings.Repeat(parts[1], n)
	})
}

// linesWith returns the lines that begin with the prefix, without it, as one string.
func linesWith(prefix, text string) string {
	var out []string
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), prefix); ok {
			out = append(out, rest)
		}
	}
	return strings.Join(out, "\n")
}

// TestCompileDiagnostics compares what is said of documents with one mistake each with
// testdata/diagnostics.txtar. UPDATE_GOLDEN=1 writes it.
func TestCompileDiagnostics(t *testing.T) {
	t.Parallel()
	const golden = "testdata/diagnostics.txtar"
	archive, err := txtar.ParseFile(golden)
	must(t, err)
	for i := range archive.Files {
		file := &archive.Files[i]
		changes := linesWith("-", string(file.Data))
		documents, change := documents(replicasPolicy, replicasBinding), string(file.Data)
		if strings.HasPrefix(file.Name, "own: ") {
			documents = ownPolicy
		}
		if !strings.Contains(documents, changes) {
			t.Fatalf("%s: %q is not in the documents", file.Name, changes)
		}
		got := lines(diagnosticsOf(t, strings.Replace(documents, changes, unfold(linesWith("+", change)), 1)))
		if isWarning := func(line string) bool { return strings.HasPrefix(line, "warning: ") }; slices.ContainsFunc(got, func(line string) bool { return !isWarning(line) }) {
			got = slices.DeleteFunc(got, isWarning) // what is broken also leaves others inert
		}
		text := ""
		for line := range strings.Lines(change) {
			if strings.HasPrefix(line, "-") || strings.HasPrefix(line, "+") {
				text += line
			}
		}
		for _, line := range got {
			text += strings.ReplaceAll(line, "\n", "\\n") + "\n"
		}
		if os.Getenv("UPDATE_GOLDEN") == "1" {
			file.Data = []byte(text)
		} else if text != change {
			t.Errorf("%s: got\n%s\nwant\n%s", file.Name, text, change)
		}
	}
	if os.Getenv("UPDATE_GOLDEN") == "1" {
		must(t, os.WriteFile(golden, txtar.Format(archive), 0o600))
	}
}

// TestCompileReportsAllDocuments holds that one broken document does not hide
// another, and that the order does not depend on the order of the documents.
func TestCompileReportsAllDocuments(t *testing.T) {
	t.Parallel()
	spec := specOf(t, strings.Join([]string{
		strings.ReplaceAll(replicasPolicy, "<=", "<"), ownPolicy,
		strings.ReplaceAll(strings.ReplaceAll(replicasPolicy, "replicas}", "other}"), "object.spec", "x.spec"),
		strings.ReplaceAll(replicasBinding, "Deny", "deny"),
		strings.ReplaceAll(ownPolicy, "baseline", "base"),
	}, "\n---\n"))
	_, err := policy.Compile(spec)
	slices.Reverse(spec.Policies)
	slices.Reverse(spec.AdmissionPolicies)
	spec.AdmissionPolicies[0].Name = "own2"
	_, _ = policy.Compile(spec)
	spec.AdmissionPolicies[0].Name = "own"
	slices.Reverse(spec.AdmissionPolicies)
	_, again := policy.Compile(spec)
	if err == nil || again == nil || err.Error() != again.Error() {
		t.Fatalf("the diagnostics depend on the order of the documents:\n%v\n\n%v", err, again)
	}
	for _, part := range []string{`"x" is not declared`, `"deny" is not allowed`, `"base" is not allowed`, `"own" is taken`} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in\n%v", part, err)
		}
	}
}

// TestCompileLeavesTheSpecAlone holds that defaults go into a copy.
func TestCompileLeavesTheSpecAlone(t *testing.T) {
	t.Parallel()
	spec := specOf(t, replicasPolicy+"\n---\n"+strings.Replace(replicasBinding, "validationActions", "matchResources: {}, validationActions", 1)+"\n---\n"+ownPolicy)
	spec.Objects = nil
	before := toJSON(t, documentsOf(spec))
	if _, err := policy.Compile(spec); err != nil {
		t.Fatal(err)
	}
	if after := toJSON(t, documentsOf(spec)); after != before {
		t.Errorf("the spec was changed from\n%s\nto\n%s", before, after)
	}
}

func TestEmptySpecAllows(t *testing.T) {
	t.Parallel()
	set, err := policy.Compile(policy.Spec{})
	must(t, err)
	if got := verdict(decide(t, set, review(t, readFile(t, "testdata/pod.json")))); got != "allowed" {
		t.Errorf("got %s", got)
	}
	if warnings := set.Warnings(); len(warnings) > 0 {
		t.Errorf("got warnings %v", warnings)
	}
}

func TestWarningsAreACopy(t *testing.T) {
	t.Parallel()
	set := compile(t, replicasPolicy)
	set.Warnings()[0] = diagnostic.Diagnostic{}
	if got := set.Warnings()[0].Object; got != "ValidatingAdmissionPolicy/replicas" {
		t.Errorf("the set's warnings were changed: %q", got)
	}
}

// documentsOf returns the documents of a spec.
func documentsOf(spec policy.Spec) any {
	return []any{spec.Policies, spec.Bindings, spec.AdmissionPolicies, spec.AdmissionPolicyBindings, spec.Exceptions, spec.Configuration}
}
