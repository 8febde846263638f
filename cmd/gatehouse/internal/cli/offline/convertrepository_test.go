package offline

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
)

// enforcing returns a ClusterPolicy about a label of ConfigMaps, and further text of its rule.
func enforcing(name, label, more string) string {
	return fmt.Sprintf(`apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: %s}
spec:
  validationFailureAction: Enforce
  rules:
    - name: r
      match: {any: [{resources: {kinds: [ConfigMap]}}]}
      validate: {message: bad, pattern: {metadata: {labels: {%s: "?*"}}}}
%s`, name, label, more)
}

// suite returns a test of Kyverno about the ConfigMap x of cm.yaml.
func suite(name, results string) string {
	return "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata: {name: " + name + "}\npolicies: [policy.yaml]\nresources: [cm.yaml]\nresults:\n" + results
}

const (
	configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"
	fails     = "  - {policy: p, rule: r, resources: [x], kind: ConfigMap, result: fail}\n"
	excepted  = "apiVersion: kyverno.io/v2\nkind: PolicyException\nmetadata: {name: e}\nspec:\n  exceptions: [{policyName: p, ruleNames: [r]}]\n" +
		"  match: {any: [{resources: {kinds: [ConfigMap], names: [%s]}}]}\n"
	celTemplate = `apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: named}
spec:
  crd: {spec: {names: {kind: Named}, validation: {openAPIV3Schema: {type: object, properties: {not: {type: string}}}}}}
  targets:
    - target: admission.k8s.gatekeeper.sh
      code: [{engine: K8sNativeValidation, source: {validations: [{expression: "variables.anyObject.metadata.name != variables.params.not", message: %s}]}}]
`
	celConstraint = "apiVersion: constraints.gatekeeper.sh/v1beta1\nkind: Named\nmetadata: {name: c}\nspec:\n  match: {kinds: [{apiGroups: [\"\"], kinds: [ConfigMap]}]}\n  parameters: {not: %s}\n"
)

// TestConvertRepository converts directories as repositories have them: what is written loads, and nothing is left out without a word.
func TestConvertRepository(t *testing.T) {
	t.Parallel()
	list := "apiVersion: v1\nkind: List\nitems:\n"
	for range 2 {
		list += "- apiVersion: kyverno.io/v1\n  kind: ClusterPolicy\n  metadata: {name: p}\n  spec: {rules: [{name: r, match: {any: [{resources: {kinds: [ConfigMap]}}]}, validate: {message: m, pattern: {data: {a: \"?*\"}}}}]}\n"
	}
	for name, row := range map[string]struct {
		files map[string]string
		code  int
		// want are in the report, and written in the directory.
		want, written []string
		documents     int
		// passed is the number of cases that pass.
		passed int
	}{
		"a policy twice": {
			files: map[string]string{"a/policy.yaml": enforcing("p", "a", ""), "b/policy.yaml": "# a comment\n" + strings.Replace(enforcing("p", "a", ""), "name: p}", "name: p, labels: {b: c}}", 1)},
			want:  []string{"b/policy.yaml:2: converted once: ClusterPolicy/p", "    the same as a/policy.yaml:1", "1 the same as others"}, documents: 1,
		},
		"a list with copies": {files: map[string]string{"list.yaml": list}, want: []string{"the same as list.yaml:4"}, documents: 2},
		"three policies of one name": {
			files: map[string]string{
				"base/policy.yaml": enforcing("p", "a", ""), "overlays/dev/policy.yaml": enforcing("p", "b", ""), "overlays/prod/policy.yaml": enforcing("p", "c", ""),
				"overlays/prod/more.yaml": enforcing("p", "d", ""), "overlays/dev/copy.yaml": enforcing("p", "a", ""),
				"overlays/prod/exception.yaml": fmt.Sprintf(excepted, "x"), "overlays/dev/exception.yaml": fmt.Sprintf(excepted, "z"),
			},
			want: []string{
				`it is named "p-dev", since base/policy.yaml:1 has another document of the name "p"`, `it is named "p-prod"`, `it is named "p-prod-2"`, "the same as base/policy.yaml:1",
				`it has no namespace: it is written for "gatehouse-system"`, `it is named "e-prod"`,
			},
			written: []string{"name: e-prod\n", "name: p-prod\n", "name: p-prod-2\n", "name: p\n", "name: p-dev\n"}, documents: 6,
		},
		"a name that a rule makes": {
			files:     map[string]string{"1.yaml": enforcing("p", "a", "    - name: s\n      match: {any: [{resources: {kinds: [Secret]}}]}\n      validate: {message: bad, pattern: {data: {a: \"?*\"}}}\n"), "2.yaml": enforcing("p-r", "b", "")},
			want:      []string{`it is named "p-r-2", since 1.yaml:1 has another document of the name "p-r"`},
			documents: 3,
		},
		"tests of one name": {
			files: map[string]string{
				"policy.yaml": enforcing("p", "a", ""), "1/kyverno-test.yaml": strings.Replace(suite("kyverno-test.yaml", fails), "policy.yaml", "../policy.yaml", 1), "1/cm.yaml": configMap,
				"2/deep/kyverno-test.yaml": strings.Replace(suite("kyverno-test.yaml", strings.Replace(fails, "fail", "pass", 1)), "policy.yaml", "../../policy.yaml", 1),
				"2/deep/cm.yaml":           "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, labels: {a: b}}\n",
				"3/kyverno-test.yaml":      strings.Replace(suite("kyverno-test.yaml", fails), "policy.yaml", "../policy.yaml", 1), "3/cm.yaml": configMap,
			},
			want:    []string{`it is named "kyverno-test.yaml-deep"`, "the same test is made of 1/kyverno-test.yaml:1"},
			written: []string{"name: kyverno-test.yaml\n", "name: kyverno-test.yaml-deep\n"}, documents: 3, passed: 2,
		},
		"tests of policies of one name": {
			files: map[string]string{
				"dev/policy.yaml": enforcing("p", "a", ""), "prod/policy.yaml": enforcing("p", "b", ""), "prod/.test/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, labels: {a: b}}\n",
				"prod/.test/kyverno-test.yaml": strings.Replace(suite("t", fails), "policy.yaml", "../policy.yaml", 1), "prod/.test/policy.yaml": "not: [read", ".git/x.yaml": "not: [read",
			},
			want: []string{"prod/.test/kyverno-test.yaml:1: converted: Test/t"}, written: []string{"- AdmissionPolicy/p-prod\n"}, documents: 3, passed: 1,
		},
		"lost tests": {
			files: map[string]string{
				"policy.yaml": enforcing("p", "a", "    - {name: signed, match: {any: [{resources: {kinds: [Pod]}}]}, verifyImages: [{}]}\n"), "cm.yaml": configMap,
				"1/kyverno-test.yaml": strings.NewReplacer("cm.yaml", "../cm.yaml", "policy: p", "policy: other").Replace(suite("misnamed", fails)),
				"2/kyverno-test.yaml": strings.NewReplacer("cm.yaml", "../cm.yaml", "rule: r", "rule: signed").Replace(suite("refused", fails)),
				"3/kyverno-test.yaml": strings.NewReplacer("cm.yaml", "../cm.yaml", "kind: ConfigMap", "kind: Secret").Replace(suite("of-another-kind", fails)),
				"4/kyverno-test.yaml": strings.NewReplacer("cm.yaml", "../cm.yaml").Replace(suite("partly", fails+strings.Replace(fails, "rule: r", "rule: typo", 1))),
				"5/kyverno-test.yaml": strings.NewReplacer("cm.yaml", "../cm.yaml").Replace(suite("empty", "")),
				"7/kyverno-test.yaml": strings.NewReplacer("cm.yaml", "../cm.yaml", "result: fail", "reslt: fail").Replace(suite("misspelt", fails)),
				"6/kyverno-test.yaml": strings.NewReplacer("cm.yaml", "gone.yaml").Replace(suite("gone", fails)),
			},
			code: cli.ExitNo,
			want: []string{
				`1/kyverno-test.yaml:7: an expectation of the policy "other", which is not among the documents`, "NOT converted: Test/misnamed",
				`2/kyverno-test.yaml:7: an expectation of the rule "signed" of "p", which it does not have or which is not converted`, "NOT converted: Test/refused",
				`3/kyverno-test.yaml:7: an expectation of "Secret x", which is not among the resources`, "NOT converted: Test/of-another-kind",
				`4/kyverno-test.yaml:8: an expectation of the rule "typo"`, "converted, differs: Test/partly", "5/kyverno-test.yaml:6: a test without results", "resources that cannot be read",
				`7/kyverno-test.yaml:7: the result "" (instead: write pass, fail, skip, warn or error)`, "NOT converted: Test/misspelt", "  1 not: the result (instead",
				"  2 not: an expectation of the rule … of …, which it does not have or which is not converted (instead: see what is reported of the policy)",
			},
			documents: 2, passed: 1,
		},
		"a test of a policy that is not converted beside another of its name": {
			files: map[string]string{
				"a/policy.yaml": strings.Replace(enforcing("p", "a", ""), "validate: {", "verifyImages: [{}]  # {", 1), "b/policy.yaml": enforcing("p", "b", ""), "a/cm.yaml": configMap,
				"a/kyverno-test.yaml": suite("t", fails), "a/exception.yaml": fmt.Sprintf(excepted, "x"),
			},
			code: cli.ExitNo, want: []string{`an expectation of the policy "p", which is not converted`, "NOT converted: Test/t", "NOT converted: PolicyException/e"}, documents: 1,
		},
		"a test of policies of one name in namespaces": {
			files: map[string]string{
				"policy.yaml": strings.NewReplacer("ClusterPolicy", "Policy", "name: p}", "name: p, namespace: blue}").Replace(enforcing("p", "a", "")),
				"red.yaml":    strings.NewReplacer("ClusterPolicy", "Policy", "name: p}", "name: p, namespace: red}").Replace(enforcing("p", "b", "")),
				"cm.yaml":     strings.Replace(configMap, "name: x", "name: x, namespace: red", 1), "kyverno-test.yaml": suite("t", strings.NewReplacer("policy: p", "policy: red/p", "result: fail", "result: fail, operation: create").Replace(fails)),
			},
			want: []string{"converted: Test/t"}, written: []string{"- AdmissionPolicy/red-p\n", "name: ConfigMap x CREATE\n"}, documents: 3, passed: 1,
		},
		"tests of old forms": {
			files: map[string]string{
				"policy.yaml": enforcing("p", "a", ""), "cm.yaml": configMap,
				"old/test.yaml":     "name: old\npolicies: [../policy.yaml]\nresources: [../cm.yaml]\nresults:\n- {policy: p, rule: autogen-r, resource: x, kind: ConfigMap, status: fail}\n",
				"kyverno-test.yaml": suite("operations", fails+strings.Replace(fails, "result: fail", "result: pass, operation: DELETE", 1)),
				"specs.yaml":        suite("specs", "  - {policy: p, rule: r, resourceSpecs: [{kind: ConfigMap, version: v1, name: x}], kind: ConfigMap, result: fail}\n"),
				"package.json":      "{\"name\": \"x\" // it is\n}",
			},
			want:    []string{"old/test.yaml:1: converted: Test/old", "converted: Test/operations", "converted, differs: Test/specs", "the same test is made of"},
			written: []string{"operation: DELETE", "name: ConfigMap x DELETE"}, documents: 3, passed: 3,
		},
		"unreadable": {
			files: map[string]string{
				"policy.yaml": enforcing("p", "a", ""), "template.yaml": "a:\n  b: c\n{{- if .Values.x }}\nd: e\n{{- end }}\n", "chart/Chart.yaml": "name: c\nversion: 1.0.0\napiVersion: v2\n",
				"chart/values.yaml": "a: b\n", "chart/templates/policy.yaml": "# of a chart\n" + strings.Replace(enforcing("q", "a", ""), "Enforce", `"{{ .Values.action }}"`, 1),
				"several.yaml": "a: [b\n---\n" + enforcing("s", "a", ""), "kustomization.yaml": "resources: [policy.yaml]\n", "two words/Chart.yaml": "name: d\n", "two words/templates/x.yaml": "{{ x }}\n",
			},
			code: cli.ExitNo,
			want: []string{
				"NOT read: template.yaml:4: near line 4: ", "helm template CHART | gatehouse convert -f -", "NOT read: chart/templates/policy.yaml:6: a template of a Helm chart (instead: helm template chart | gatehouse convert -f -)",
				"helm template 'two words' |", "NOT read: several.yaml:1: ", "4 documents not read", "ClusterPolicy/s rule r", "1 kustomization: not applied: kustomization.yaml", "(hint: gatehouse convert -k ",
			},
			documents: 2,
		},
		"constraints": {
			files: map[string]string{
				"1/template.yaml": fmt.Sprintf(celTemplate, "one"), "1/samples/constraint.yaml": fmt.Sprintf(celConstraint, "x"), "2/template.yaml": fmt.Sprintf(celTemplate, "two"),
				"2/samples/constraint.yaml": fmt.Sprintf(celConstraint, "z"), "copy.yaml": fmt.Sprintf(celConstraint, "z"),
			},
			want:    []string{`it is named "named-2", since 1/template.yaml:1`, `it is named "c-2"`, "of 2 templates for its kind, it is for that in 2/template.yaml:1", "the same as 2/samples/constraint.yaml:1"},
			written: []string{"name: named-c-2\nspec:\n  matchResources:", "    name: c-2\n    parameterNotFoundAction: Deny\n  policyName: named-2\n"}, documents: 6,
		},
		"unknown fields": {
			files: map[string]string{
				"template.yaml": fmt.Sprintf(celTemplate, "one"), "kind.yaml": strings.Replace(fmt.Sprintf(celConstraint, "x"), "match: {kinds: [", "match: {kind: [", 1),
				"misplaced.yaml": fmt.Sprintf(celConstraint, "y") + "  excludedNamespaces: [lab]\n", "top.yaml": fmt.Sprintf(celConstraint, "z") + "enforcementAction: dryrun\n",
				"deny.yaml": strings.Replace(fmt.Sprintf(celTemplate, "two"), "targets:", "target:", 1), "policy.yaml": enforcing("p", "a", "") + "  rule: []\n",
				"param.yaml": strings.Replace(fmt.Sprintf(celConstraint, "x"), "{not:", "{nott:", 1), "type.yaml": fmt.Sprintf(celConstraint, "5"),
				"operations.yaml": strings.NewReplacer("named", "other", "Named", "Other", "      code", "      operations: [DELETE]\n      code").Replace(fmt.Sprintf(celTemplate, "one")),
			},
			code: cli.ExitNo,
			want: []string{
				`kind.yaml:5: a field that cannot be read: spec.match.kind: unknown field (instead: did you mean "kinds"?)`, `misplaced.yaml:7: a field that cannot be read: spec.excludedNamespaces: unknown field`,
				"top.yaml:7: a field that cannot be read: enforcementAction: unknown field", "deny.yaml:6: a field that cannot be read: spec.target: unknown field", "policy.yaml:10: a field that cannot be read: spec.rule: unknown field",
				"operations.yaml:8: the operations DELETE", "7 not: a field that cannot be read\n",
				"param.yaml:6: a field that cannot be read: spec.parameters.nott: unknown field", "type.yaml:6: a field that cannot be read: spec.parameters.not: ",
			},
			documents: 1,
		},
		"defaults of parameters": {
			files: map[string]string{
				"template.yaml": strings.Replace(fmt.Sprintf(celTemplate, "one"), "not: {type: string}", "not: {type: string}, or: {type: integer, default: 7}", 1),
				"c.yaml":        fmt.Sprintf(celConstraint, "x"),
				"loose.yaml":    strings.NewReplacer("named", "loose", "Named", "Loose", "{type: object, properties: {not: {type: string}}}", "{properties: {not: {}}}").Replace(fmt.Sprintf(celTemplate, "two")),
				"l.yaml":        strings.Replace(fmt.Sprintf(celConstraint, "x"), "Named", "Loose", 1),
			},
			want:    []string{"its parameters are not checked, since an API server does not accept the schema of its template"},
			written: []string{"    not: x\n    or: 7\n"}, documents: 6,
		},
		"names that others would get": {
			files: map[string]string{
				"policy.yaml": strings.Replace(enforcing("p", "a", ""), "[ConfigMap]", "[Pod]", 1), "policies/policy.yaml": enforcing("e", "b", ""), "policies/second.yaml": enforcing("e", "c", ""),
				"1.yaml":     strings.Replace(fmt.Sprintf(excepted, "x"), "{any: [{resources: {kinds: [ConfigMap], names: [x]}}]}", "{any: [{resources: {kinds: [Pod], names: [x]}}, {resources: {kinds: [Pod], names: [z]}}]}", 1),
				"2.yaml":     strings.NewReplacer("name: e}", "name: e-2}", "policyName: p", "policyName: e").Replace(fmt.Sprintf(excepted, "x")),
				"named.yaml": strings.Replace(fmt.Sprintf(celTemplate, "one"), "name: named", "name: template", 1), "c.yaml": fmt.Sprintf(celConstraint, "x"),
				"binding.yaml": strings.NewReplacer("Enforce", "Audit").Replace(enforcing("named-c", "d", "")),
			},
			want:      []string{`it is named "e-2", since policies/policy.yaml:1`, `it is named "named-c-2", since binding.yaml:1 has another document`, `it is named "e-2-2", since 1.yaml:1 has another document`},
			written:   []string{"  name: e-2-2\n  namespace: gatehouse-system\nspec:\n", "  policies:\n  - name: e\n    rules:\n    - validations[r]\n  - name: e-2\n    rules:\n    - validations[r]\n"},
			documents: 11,
		},
		"other kinds": {
			files: map[string]string{
				"policy.yaml": enforcing("p", "a", ""), "suite.yaml": "apiVersion: test.gatekeeper.sh/v1alpha1\nkind: Suite\nmetadata: {name: s}\ntests: []\n",
				"assert.yaml": "apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nmetadata: {name: p}\nstatus: {conditionStatus: {ready: true}}\n", "json.yaml": "apiVersion: json.kyverno.io/v1alpha1\nkind: ValidatingPolicy\nmetadata: {name: j}\nspec: {}\n",
				"assign.yaml": "apiVersion: mutations.gatekeeper.sh/v1\nkind: Assign\nmetadata: {name: a}\nspec: {}\n", "job.yaml": "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\n",
			},
			code: cli.ExitNo, want: []string{"a test of Gatekeeper (instead: write a Test for gatehouse test)", "the kind Assign (instead: write a MutatingAdmissionPolicy)", "assert.yaml:4: what a test expects of a policy", "the kind ValidatingPolicy of json.kyverno.io", "1 other document\n"}, documents: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "out")
			got := convertFiles(t, row.files, ".", "-o", "dir", "--directory", dir)
			if got.Code != row.code {
				t.Errorf("ends with %d, want %d", got.Code, row.code)
			}
			files, err := filepath.Glob(filepath.Join(dir, "*"))
			if err != nil {
				t.Fatal(err)
			}
			written := ""
			for _, file := range files {
				text, failed := os.ReadFile(file)
				if failed != nil {
					t.Fatal(failed)
				}
				written += string(text)
			}
			if n := strings.Count(written, "\napiVersion:"); n != row.documents {
				t.Errorf("%d documents are written, want %d", n, row.documents)
			}
			for _, want := range append(row.want, "next 1: gatehouse lint --config ") {
				if !strings.Contains(got.Err, want) {
					t.Errorf("no %q in the report", want)
				}
			}
			for _, want := range row.written {
				if !strings.Contains(written, want) {
					t.Errorf("no %q is written", want)
				}
			}
			if code, said := gatehouse(t, "", "lint", "--allow-empty", "--config", dir); code != cli.ExitYes || strings.Contains(said, "not evaluate") {
				t.Errorf("lint ends with %d: %s", code, said)
			}
			if row.passed > 0 {
				if code, said := gatehouse(t, "", "test", "--config", dir); code != cli.ExitYes || !strings.Contains(said, fmt.Sprintf("%d passed", row.passed)) {
					t.Errorf("test ends with %d: %s", code, said)
				}
			}
			if t.Failed() {
				t.Logf("%s\n%s", got.Err, written)
			}
		})
	}
}

// TestConvertFailures wants that a file that cannot be read stops no other, that lint of the result counts, and that JSON has all of it.
func TestConvertFailures(t *testing.T) {
	t.Parallel()
	files := map[string]string{"policy.yaml": enforcing("p", "a", ""), "broken.yaml": "a: [b\n", "bad.yaml": strings.Replace(enforcing("b", "a", ""), "validate:", "verifyImages: [{}]\n      mutat:", 1)}
	for _, args := range [][]string{{"policy.yaml", "broken.yaml"}, {"missing.yaml", "policy.yaml"}} {
		got := convertFiles(t, files, append(args, "-o", "yaml")...)
		if got.Code != cli.ExitUnknown || !strings.Contains(got.Out, "name: p\n") || !strings.Contains(got.Err, "cannot be read") {
			t.Errorf("%v: ends with %d: %s\n%s", args, got.Code, got.Err, got.Out)
		}
	}
	got := convertFiles(t, files, ".", "-o", "json")
	var report struct {
		Results, Unread []struct{ File string }
		Reasons         []struct {
			Count  int
			Reason string
		}
		Next []string
	}
	if err := json.Unmarshal([]byte(got.Out), &report); err != nil || got.Code != cli.ExitNo {
		t.Fatalf("ends with %d: %v\n%s", got.Code, err, got.Out)
	}
	if len(report.Results) != 2 || len(report.Unread) != 1 || report.Unread[0].File != "broken.yaml" || len(report.Next) != 4 || len(report.Reasons) != 1 || report.Reasons[0].Reason != "a field that cannot be read" {
		t.Errorf("the report is %+v", report)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine.yaml"), []byte("apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionPolicy\nmetadata: {name: p}\nspec: {validations: [{expression: \"true\"}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got = convertFiles(t, files, "policy.yaml", "-o", "dir", "--directory", dir)
	code, said := gatehouse(t, "", "lint", "--config", dir)
	if got.Code != cli.ExitNo || code != cli.ExitNo || !strings.Contains(got.Err, "given twice") {
		t.Errorf("convert ends with %d, lint with %d: %s", got.Code, code, got.Err)
	}
	for line := range strings.Lines(said) {
		if strings.Contains(line, "error:") && !strings.Contains(got.Err, line) {
			t.Errorf("no %q in %s", line, got.Err)
		}
	}
}

// TestConvertLinks wants a link that leads nowhere, or in a circle, to be named and to stop nothing.
func TestConvertLinks(t *testing.T) {
	t.Parallel()
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	for name, to := range map[string]string{"nowhere.yaml": "missing.yaml", "circle.yaml": "circle.yaml", "up": "."} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(enforcing("p", "a", "")), 0o600); err != nil {
		t.Fatal(err)
	}
	got := clitest.Run(t.Context(), "", []string{"convert", dir, "-o", "dir", "--directory", out}, NewConvertCommand)
	if code, said := got.Code, got.Err; code != cli.ExitNo || !strings.Contains(said, "nowhere.yaml:1: cannot be read: ") || !strings.Contains(said, "circle.yaml:1: cannot be read: ") || !strings.Contains(said, "2 documents not read") {
		t.Errorf("ends with %d: %s", code, said)
	}
	if _, err := os.Stat(filepath.Join(out, "p.yaml")); err != nil {
		t.Error(err)
	}
}
