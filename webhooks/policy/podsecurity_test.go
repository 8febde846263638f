package policy_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	podsecurityapi "k8s.io/pod-security-admission/api"
	podsecuritypolicy "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"
)

// TestPodSecurityFixtures holds the answer against upstream's fixtures: what
// passes, what fails, and that every failed check is named as upstream's checks
// name it over the whole pod, of which we decode a part.
func TestPodSecurityFixtures(t *testing.T) {
	t.Parallel()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission").Output()
	if err != nil {
		t.Fatalf("where are the fixtures? %v", err)
	}
	fixtures := os.DirFS(path.Join(strings.TrimSpace(string(dir)), "test", "testdata"))
	evaluator, err := podsecuritypolicy.NewEvaluator(podsecuritypolicy.DefaultChecks(), nil)
	must(t, err)
	files, err := fs.Glob(fixtures, "*/v1.*/*/*.yaml")
	must(t, err)
	byStandard := map[[2]string][]string{}
	for _, file := range files {
		parts := strings.Split(file, "/")
		standard := [2]string{parts[0], parts[1]}
		byStandard[standard] = append(byStandard[standard], file)
	}
	if len(files) < 4000 || len(byStandard) < 70 {
		t.Fatalf("only %d fixtures of %d standards were found", len(files), len(byStandard))
	}
	for standard, files := range byStandard {
		t.Run(standard[0]+" "+standard[1], func(t *testing.T) {
			t.Parallel()
			set := compile(t, strings.Replace(restrictedPolicy, "{level: restricted}", fmt.Sprintf("{level: %s, version: %s}", standard[0], standard[1]), 1))
			version, err := podsecurityapi.ParseVersion(standard[1])
			must(t, err)
			for _, file := range files {
				text, err := fs.ReadFile(fixtures, file)
				must(t, err)
				raw, err := yaml.YAMLToJSON(text)
				must(t, err)
				pod := new(corev1.Pod)
				must(t, json.Unmarshal(raw, pod))
				for i := range pod.Spec.Volumes {
					if pod.Spec.Volumes[i].VolumeSource == (corev1.VolumeSource{}) {
						pod.Spec.Volumes[i].EmptyDir = &corev1.EmptyDirVolumeSource{}
					}
				}
				var want []string
				for _, result := range evaluator.EvaluatePod(podsecurityapi.LevelVersion{Level: podsecurityapi.Level(standard[0]), Version: version}, &pod.ObjectMeta, &pod.Spec) {
					if !result.Allowed {
						one := podsecuritypolicy.AggregateCheckResults([]podsecuritypolicy.CheckResult{result})
						want = append(want, fmt.Sprintf(`AdmissionPolicy 'restricted' denied request: violates PodSecurity "%s:%s": %s`, standard[0], standard[1], one.ForbiddenDetail()))
					}
				}
				response := decide(t, set, review(t, string(text)))
				if response.Allowed != strings.Contains(file, "/pass/") {
					t.Errorf("%s: %s %q", file, verdict(response), message(response))
				}
				var got []string
				if !response.Allowed {
					for _, cause := range response.Result.Details.Causes {
						got = append(got, cause.Message)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s:\ngot  %q\nwant %q", file, got, want)
				}
			}
		})
	}
}

const plainPod = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec: {containers: [{name: web, image: "web:1"}], initContainers: [{name: init, image: "init:1"}]}`

func TestPodSecurity(t *testing.T) {
	t.Parallel()
	debug := strings.Replace(plainPod, "spec: {", `spec: {ephemeralContainers: [{name: debug, image: "sh:1"}], `, 1)
	two := strings.Replace(plainPod, "containers: [", `containers: [{name: more, image: "more:1"}, `, 1)
	const baseline = "{level: baseline}"
	for _, tc := range []struct {
		name     string
		standard string
		pod      string
		options  func(*admission.Request)
		want     string
	}{
		{"created", "{level: restricted}", plainPod, nil, "denied"},
		{"created, baseline", baseline, plainPod, nil, "allowed"},
		{"created, privileged", "{level: privileged}", strings.Replace(plainPod, "spec: {", "spec: {hostNetwork: true, ", 1), nil, "allowed"},
		{"created, old version", "{level: restricted, version: v1.0}", plainPod, nil, "denied"},
		{"created, version to come", "{level: restricted, version: v1.999}", plainPod, nil, "denied"},
		{"updated without a change", "{level: restricted}", plainPod, updating(t, plainPod), "allowed"},
		{"labels updated", "{level: restricted}", plainPod, updating(t, strings.Replace(plainPod, "name: web,", "name: web, labels: {a: b},", 1)), "allowed"},
		{"image updated", "{level: restricted}", plainPod, updating(t, strings.Replace(plainPod, "web:1", "web:2", 1)), "denied"},
		{"image of an init container updated", "{level: restricted}", plainPod, updating(t, strings.Replace(plainPod, "init:1", "init:2", 1)), "denied"},
		{"container added", "{level: restricted}", two, updating(t, plainPod), "denied"},
		{"container removed", "{level: restricted}", plainPod, updating(t, two), "denied"},
		{"old object missing", "{level: restricted}", plainPod, func(r *admission.Request) { r.Operation = admissionv1.Update }, "denied"},
		{"ephemeral container added", "{level: restricted}", debug, updating(t, plainPod), "denied"},
		{"ephemeral container kept", "{level: restricted}", debug, updating(t, debug), "allowed"},
		{"ephemeral container's image changed", "{level: restricted}", debug, updating(t, strings.Replace(debug, "sh:1", "sh:2", 1)), "denied"},
		{"ephemeral container removed", "{level: restricted}", plainPod, updating(t, debug), "allowed"},
		{"privileged ephemeral container", baseline, strings.Replace(debug, `"sh:1"`, `"sh:1", securityContext: {privileged: true}`, 1), updating(t, plainPod), "denied"},
		{"volume without a source", "{level: restricted, version: v1.0}", strings.Replace(plainPod, "spec: {", "spec: {securityContext: {runAsNonRoot: true}, volumes: [{name: a}], ", 1), nil, "allowed"},
		{"not a pod", baseline, `{apiVersion: v1, kind: Binding, metadata: {name: a}}`, func(r *admission.Request) { r.Resource.Resource = "pods" }, "could not tell"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(restrictedPolicy, "{level: restricted}", tc.standard+"\n  existingViolations: Deny", 1)
			text = strings.Replace(text, `["pods"]`, `["pods", "pods/ephemeralcontainers"]`, 1)
			options := func(r *admission.Request) {
				if tc.options != nil {
					tc.options(r)
				}
				if strings.HasPrefix(tc.name, "ephemeral") {
					r.SubResource = "ephemeralcontainers"
				}
			}
			response := decide(t, compile(t, text), review(t, tc.pod, options))
			if got := verdict(response); got != tc.want {
				t.Errorf("got %s %q, want %s", got, message(response), tc.want)
			}
		})
	}
}

// TestVolumes holds that a volume is an emptyDir only if nothing else is said
// of it: a source that this version does not know is refused.
func TestVolumes(t *testing.T) {
	t.Parallel()
	pod := `{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {
	  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}, volumes: [VOLUME],
	  containers: [{name: web, image: "web:1", securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}}`
	set := compile(t, restrictedPolicy)
	for volume, want := range map[string]string{
		`{name: a}`:                                       "allowed",
		`{name: a, emptyDir: null}`:                       "allowed",
		`{name: a, emptyDir: {}}`:                         "allowed",
		`{name: a, secret: {secretName: b}}`:              "allowed",
		`{name: a, configMap: {name: b}}, {name: b}`:      "allowed",
		`{name: a, hostPath: {path: /}}`:                  "denied",
		`{name: a, fromTheFuture: {}}`:                    "denied",
		`{name: a}, {name: b, nfs: {server: c, path: /}}`: "denied",
		`{name: a, secret: null, hostPath: {path: /}}`:    "denied",
		`{name: a, Secret: {secretName: b}}`:              "denied",
		`{name: a, secret: 5}`:                            "could not tell",
		`5`:                                               "could not tell",
	} {
		response := decide(t, set, review(t, strings.Replace(pod, "VOLUME", volume, 1)))
		if got := verdict(response); got != want {
			t.Errorf("%s: got %s %q, want %s", volume, got, message(response), want)
		}
	}
}

// TestPodSecurityWithExpressions holds that match conditions stand before the
// standard, and that violations of both are in one answer.
func TestPodSecurityWithExpressions(t *testing.T) {
	t.Parallel()
	text := strings.Replace(restrictedPolicy, "  podSecurity: {level: restricted}", `  matchConditions: [{name: not-bob, expression: "request.userInfo.username != 'bob'"}, {name: data, expression: "object.metadata.name != 'broken' || object.nothing"}]
  podSecurity: {level: baseline}
  validations: [{expression: "has(object.metadata.labels)", message: no labels}]`, 1)
	privileged := strings.Replace(plainPod, "spec: {", "spec: {hostNetwork: true, hostPID: true, ", 1)
	privileged = strings.Replace(privileged, `"web:1"`, `"web:1", ports: [{containerPort: 80, hostPort: 80}]`, 1)
	response := decide(t, compile(t, text), review(t, privileged))
	const want = `3 violations:
1. AdmissionPolicy 'restricted' denied request: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true, hostPID=true)
2. AdmissionPolicy 'restricted' denied request: violates PodSecurity "baseline:latest": hostPort (container "web" uses hostPort 80)
3. AdmissionPolicy 'restricted' denied request: no labels`
	if message(response) != want || response.Result.Code != 403 {
		t.Errorf("got %d\n%s\nwant\n%s", response.Result.Code, message(response), want)
	}
	bob := func(r *admission.Request) { r.UserInfo.Username = "bob" }
	if got := decide(t, compile(t, text), review(t, privileged, bob)); !got.Allowed {
		t.Errorf("bob is not exempt: %s", message(got))
	}
	broken := strings.Replace(privileged, "name: web, namespace", "name: broken, namespace", 1)
	if got := message(decide(t, compile(t, text), review(t, broken))); got != "AdmissionPolicy 'restricted' denied request: expression 'object.metadata.name != 'broken' || object.nothing' resulted in error: no such key: nothing" {
		t.Errorf("a broken condition gives %q", got)
	}
	ignoring := strings.Replace(text, "spec:\n", "spec:\n  failurePolicy: Ignore\n", 1)
	if got := decide(t, compile(t, ignoring), review(t, broken)); !got.Allowed {
		t.Errorf("a broken condition that is ignored gives %s", message(got))
	}
	auditing := strings.Replace(text, "[Deny]", "[Audit]", 1)
	if got := decide(t, compile(t, auditing), review(t, privileged)).AuditAnnotations["validation_failure"]; strings.Count(got, `"expressionIndex":-1`) != 2 || strings.Count(got, `"expressionIndex":0`) != 1 {
		t.Errorf("got audit annotation %s", got)
	}
}
