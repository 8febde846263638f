package policy_test

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const plainPod = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec: {containers: [{name: web, image: "web:1"}], initContainers: [{name: init, image: "init:1"}]}`

func TestPodSecurity(t *testing.T) {
	t.Parallel()
	debug := strings.Replace(plainPod, "spec: {", `spec: {ephemeralContainers: [{name: debug, image: "sh:1"}], `, 1)
	two := strings.Replace(plainPod, "containers: [", `containers: [{name: more, image: "more:1"}, `, 1)
	one, _, _ := strings.Cut(plainPod, ", initContainers")
	one += "}"
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
		{"restricted, procMount with a user namespace", "{level: restricted}", strings.NewReplacer("spec: {", "spec: {hostUsers: false, securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}, ",
			`"web:1"`, `"web:1", securityContext: {procMount: Unmasked, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`).Replace(one), nil, "denied"},
		{"restricted, with a user namespace", "{level: restricted}", strings.NewReplacer("spec: {", "spec: {hostUsers: false, ",
			`"web:1"`, `"web:1", securityContext: {runAsUser: 0, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}`).Replace(one), nil, "allowed"},
		{"baseline, a probe of the loopback address", baseline, strings.Replace(one, `"web:1"`, `"web:1", livenessProbe: {httpGet: {host: 127.0.0.1, port: 80}}`, 1), nil, "denied"},
		{"baseline before 1.34, a probe of the loopback address", "{level: baseline, version: v1.33}", strings.Replace(one, `"web:1"`, `"web:1", livenessProbe: {httpGet: {host: 127.0.0.1, port: 80}}`, 1), nil, "allowed"},
		{"volume without a source", "{level: restricted, version: v1.0}", strings.Replace(plainPod, "spec: {", "spec: {securityContext: {runAsNonRoot: true}, volumes: [{name: a}], ", 1), nil, "allowed"},
		{"not a pod", baseline, `{apiVersion: v1, kind: Binding, metadata: {name: a}}`, func(r *admission.Request) { r.Resource.Resource = "pods" }, "cannot decide"},
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
			if hinted := strings.Contains(message(response), " (hint: kubectl debug --profile="); hinted != (tc.want == "denied" && strings.HasPrefix(tc.name, "ephemeral")) {
				t.Errorf("the message is %q", message(response))
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
		`{name: a, secret: 5}`:                            "cannot decide",
		`5`:                                               "cannot decide",
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
	const want = `3 violations: 1. AdmissionPolicy 'restricted' denied request: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true, hostPID=true)
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
