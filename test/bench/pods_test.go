package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	podsecurity "k8s.io/pod-security-admission/api"
	podpolicy "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// restrictedFaults returns what the Pod Security Standard restricted finds.
func restrictedFaults(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	evaluator, err := podpolicy.NewEvaluator(podpolicy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
	result := podpolicy.AggregateCheckResults(evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec))
	return result.ForbiddenDetail()
}

func TestRealisticPods(t *testing.T) {
	for _, size := range []int{1_500, 5_000, 60_000} {
		pod, err := realisticPod(size)
		if err != nil {
			t.Fatal(err)
		}
		again, err := realisticPod(size)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) != size {
			t.Errorf("pod of %d bytes has %d", size, len(text))
		}
		other, err := json.Marshal(again)
		if err != nil {
			t.Fatal(err)
		}
		if string(other) != string(text) {
			t.Errorf("pod of %d bytes differs when made twice", size)
		}
		if len(pod.ManagedFields) != 1 || !strings.Contains(pod.ManagedFields[0].FieldsV1.GetRawString(), `k:{\"name\":\"checkout\"}`) {
			t.Errorf("pod of %d bytes has managed fields %v", size, pod.ManagedFields)
		}
		if problems := podProblems(pod); len(problems) > 0 {
			t.Errorf("pod of %d bytes: %v", size, problems)
		}
		if detail := restrictedFaults(t, pod); detail != "" {
			t.Errorf("pod of %d bytes: %s", size, detail)
		}
	}
	refused, err := refusedPod()
	if err != nil {
		t.Fatal(err)
	}
	if problems := podProblems(refused); len(problems) != 3 {
		t.Errorf("refused pod breaks %q", problems)
	}
	if restrictedFaults(t, refused) == "" {
		t.Error("refused pod meets the restricted standard")
	}
}

// A Deployment is as long as a pod of 5 KB, and makes the pod that it is made of.
func TestDeploymentOf(t *testing.T) {
	pod, err := realisticPod(4_000)
	if err != nil {
		t.Fatal(err)
	}
	deployment, err := deploymentOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(deployment)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) != 5_000 || !reflect.DeepEqual(deployment.Spec.Template.Spec, pod.Spec) {
		t.Errorf("%d bytes: %s", len(text), text)
	}
	review, err := deploymentReview(deployment)
	if err != nil || !strings.Contains(string(review.text), `"resource":{"group":"apps","version":"v1","resource":"deployments"}`) {
		t.Errorf("%v: %s", err, review.text)
	}
}

// What marks a pod is on it, and does not change its size.
func TestMarkedPod(t *testing.T) {
	pod, err := markedPod(5_000, map[string]string{"a": "b"}, map[string]string{"c": "d"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) != 5_000 || pod.Labels["a"] != "b" || pod.Annotations["c"] != "d" {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}

func TestPodReviewHoldsItsUID(t *testing.T) {
	s := someScenario(t, "mutate/5KB/http2/c1")
	text := append([]byte(nil), s.body.text...)
	uid := requestUID(0x1_0000_0002)
	copy(text[s.body.uidAt:], uid)
	var review admissionv1.AdmissionReview
	if err := yaml.UnmarshalStrict(text, &review); err != nil {
		t.Fatal(err)
	}
	if want := "00000001-0000-4000-8000-000000000002"; string(review.Request.UID) != want || uid != want {
		t.Errorf("uid %q and %q, want %q", review.Request.UID, uid, want)
	}
}

// Every document of every configuration is strict YAML of its kind.
func TestDocuments(t *testing.T) {
	for configuration, want := range map[string]string{
		noPolicies:        "AccessToken Namespace SidecarProfile",
		onePolicy:         "AccessToken Namespace SidecarProfile ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding",
		tenPolicies:       "AccessToken Namespace SidecarProfile" + strings.Repeat(" ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding", 10),
		tenRules:          "AccessToken Namespace SidecarProfile ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding",
		podSecurity:       "AccessToken Namespace SidecarProfile AdmissionPolicy",
		hundredPolicies:   "AccessToken Namespace SidecarProfile" + strings.Repeat(" ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding", 100),
		manyPolicies:      "AccessToken Namespace SidecarProfile" + strings.Repeat(" ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding", 1000),
		workloadTemplates: "AccessToken Namespace SidecarProfile AdmissionPolicy",
		exceptions:        "AccessToken Namespace SidecarProfile" + strings.Repeat(" ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding", 10) + strings.Repeat(" PolicyException", 100),
		twoProfiles:       "AccessToken Namespace SidecarProfile SidecarProfile",
		manyProfiles:      "AccessToken Namespace" + strings.Repeat(" SidecarProfile", 200),
		parameters:        "AccessToken Namespace SidecarProfile",
	} {
		t.Run(configuration, func(t *testing.T) {
			directory := t.TempDir()
			if err := writeDocuments(directory, configuration, time.Now()); err != nil {
				t.Fatal(err)
			}
			var kinds []string
			for _, name := range []string{"token.json", "namespace.yaml", "profiles.yaml", "policy.yaml", "policies.yaml", "exceptions.yaml"} {
				text, err := os.ReadFile(filepath.Join(directory, name))
				if os.IsNotExist(err) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				kinds = append(kinds, strictKinds(t, string(text))...)
			}
			if got := strings.Join(kinds, " "); got != want {
				t.Errorf("kinds %q, want %q", got, want)
			}
		})
	}
	if err := writeDocuments(t.TempDir(), "no policy", time.Now()); err == nil {
		t.Error("an unknown configuration was written")
	}
}

// strictKinds decodes each document of a text into its Go type.
func strictKinds(t *testing.T, text string) []string {
	t.Helper()
	types := map[string]func() any{
		"AccessToken":                      func() any { return new(v1alpha1.AccessToken) },
		"AdmissionPolicy":                  func() any { return new(v1alpha1.AdmissionPolicy) },
		"PolicyException":                  func() any { return new(v1alpha1.PolicyException) },
		"Namespace":                        func() any { return new(corev1.Namespace) },
		"SidecarProfile":                   func() any { return new(v1alpha1.SidecarProfile) },
		"ValidatingAdmissionPolicy":        func() any { return new(admissionregistrationv1.ValidatingAdmissionPolicy) },
		"ValidatingAdmissionPolicyBinding": func() any { return new(admissionregistrationv1.ValidatingAdmissionPolicyBinding) },
	}
	var kinds []string
	documents := utilyaml.NewDocumentDecoder(io.NopCloser(strings.NewReader(text)))
	defer func() { _ = documents.Close() }()
	buffer := make([]byte, 1<<16)
	for {
		n, err := documents.Read(buffer)
		if err == io.EOF {
			return kinds
		}
		if err != nil {
			t.Fatal(err)
		}
		var meta struct{ Kind string }
		if err := yaml.Unmarshal(buffer[:n], &meta); err != nil {
			t.Fatal(err)
		}
		if types[meta.Kind] == nil {
			t.Fatalf("document of unknown kind %q: %s", meta.Kind, buffer[:n])
		}
		if err := yaml.UnmarshalStrict(buffer[:n], types[meta.Kind]()); err != nil {
			t.Errorf("%s: %v", meta.Kind, err)
		}
		kinds = append(kinds, meta.Kind)
	}
}
