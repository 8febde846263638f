package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

func TestPolicyRefusesWithAllViolations(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	pods := w.Client().CoreV1().Pods("rules")
	_, err := pods.Create(t.Context(), pod("bad", func(p *corev1.Pod) {
		p.Spec.Containers[0].Image = "registry.example/app:latest"
		p.Spec.PriorityClassName = "system-node-critical"
	}), metav1.CreateOptions{})
	err = refusal(err, 403, `admission webhook "fail.validate.gatehouse.dev" denied the request: 3 violations:`,
		"1. AdmissionPolicy 'team-rules' denied request: the label team is missing",
		"2. AdmissionPolicy 'team-rules' denied request: not a fixed version: registry.example/app:latest",
		"3. AdmissionPolicy 'team-rules' denied request: no priority classes here")
	if err != nil {
		t.Error(err)
	}
	_, err = pods.Create(t.Context(), pod("one", labelled("team", "blue"), func(p *corev1.Pod) {
		p.Spec.Containers[0].Image = "registry.example/app:latest"
	}), metav1.CreateOptions{})
	err = refusal(err, 422, "denied the request: AdmissionPolicy 'team-rules' denied request: not a fixed version: registry.example/app:latest")
	if err != nil {
		t.Error(err)
	}
	_, err = pods.Create(t.Context(), pod("good", labelled("team", "blue")), metav1.CreateOptions{})
	if err != nil {
		t.Errorf("a good pod: %v", err)
	}
	_, err = w.Client().CoreV1().Pods("default").Create(t.Context(), pod("unruled"), metav1.CreateOptions{})
	if err != nil {
		t.Errorf("a pod in another namespace: %v", err)
	}
}

func TestPolicyWarnsAndAudits(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	client, warnings := w.warned(t)
	for _, name := range []string{"odd", "even"} {
		_, err := client.CoreV1().ConfigMaps("rules").Create(t.Context(), configMap(name, nil, "a=1", "b=2"), metav1.CreateOptions{})
		must(t, err)
	}
	if want := []string{"Validation failed for AdmissionPolicy 'advice': an odd name"}; !slices.Equal(warnings(), want) {
		t.Errorf("got the warnings %q, want %q", warnings(), want)
	}
	const failure, keys = "fail.validate.gatehouse.dev/validation_failure", "fail.validate.gatehouse.dev/advice_keys"
	for name, failed := range map[string]bool{"odd": true, "even": false} {
		support.Eventually(t, "the audit log", func() error {
			annotations, err := w.audited("configmaps", "rules", name)
			switch {
			case err != nil:
				return err
			case annotations[keys] != "2":
				return fmt.Errorf("%s: %s is %q, want the number of keys", name, keys, annotations[keys])
			case strings.Contains(annotations[failure], `"message":"an odd name"`) != failed:
				return fmt.Errorf("%s: %s is %q", name, failure, annotations[failure])
			}
			return nil
		})
	}
}

func TestPodSecurity(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	pods := w.Client().CoreV1().Pods("standard")
	for _, test := range []struct {
		name  string
		edit  func(*corev1.Pod)
		wants []string // "" admits
	}{
		{"plain", func(*corev1.Pod) {}, nil},
		{"privileged", func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		}, []string{`violates PodSecurity "baseline:latest": privileged (container "app" must not set securityContext.privileged=true)`}},
		{"hostpath-and-hostpid", func(p *corev1.Pod) {
			p.Spec.HostPID = true
			p.Spec.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		}, []string{"2 violations:", "host namespaces (hostPID=true)", `hostPath volumes (volume "host")`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := pods.Create(t.Context(), pod(test.name, test.edit), metav1.CreateOptions{})
			if test.wants == nil {
				must(t, err)
				return
			}
			err = refusal(err, 403, append(test.wants, "fail.validate.gatehouse.dev")...)
			if err != nil {
				t.Error(err)
			}
		})
	}

	t.Run("debug container", func(t *testing.T) {
		debugged, err := pods.Get(t.Context(), "plain", metav1.GetOptions{})
		must(t, err)
		for name, privileged := range map[string]bool{"debugger": false, "intruder": true} {
			changed := debugged.DeepCopy()
			changed.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: name, Image: "registry.example/debug:1", SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
			}}}
			_, err := pods.UpdateEphemeralContainers(t.Context(), "plain", changed, metav1.UpdateOptions{DryRun: dryRun.DryRun})
			if !privileged {
				must(t, err)
				continue
			}
			err = refusal(err, 403, `container "intruder" must not set securityContext.privileged=true`)
			if err != nil {
				t.Error(err)
			}
		}
	})
}
