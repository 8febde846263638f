package main

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	podsecurity "k8s.io/pod-security-admission/api"
	podpolicy "k8s.io/pod-security-admission/policy"
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
