package install

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/webhooks"
)

// as reads an object strictly.
func as[T any](t *testing.T, o *unstructured.Unstructured) *T {
	t.Helper()
	typed := new(T)
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, typed, true))
	return typed
}

// The ports that serve listens on unless it is told otherwise.
const (
	reviewsPort = 9443
	opsPort     = 8080
)

// TestProgramIsSmall: the program is downloaded by each node, and by each run of the action.
func TestProgramIsSmall(t *testing.T) {
	program, err := os.Stat(binary(t))
	must(t, err)
	if program.Size() >= 100<<20 {
		t.Errorf("the program has %d MiB, want less than 100 (hint: build with the flags of the Makefile)", program.Size()>>20)
	}
}

// TestRegistrationFitsProgram: what the API server is told to call is what the program answers, by its own table, and
// the Service leads there.
func TestRegistrationFitsProgram(t *testing.T) {
	t.Parallel()
	paths := map[string]string{}
	for _, e := range webhooks.Endpoints() {
		if e.Admission != nil {
			paths[e.Name] = e.Path
		}
	}
	for _, v := range variants(t) {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			deployment := as[appsv1.Deployment](t, v.find(t, "Deployment", name))
			service := as[corev1.Service](t, v.find(t, "Service", name))
			check := func(webhook, endpoint string, config *admissionregistrationv1.WebhookClientConfig) {
				reference := config.Service
				if reference == nil || reference.Path == nil || reference.Port == nil {
					t.Fatalf("%s is called at %v, want a Service with a path and a port", webhook, config)
				}
				if *reference.Path != paths[endpoint] {
					t.Errorf("%s is called at %q, want %q: the program's table says so", webhook, *reference.Path, paths[endpoint])
				}
				if reference.Namespace != service.Namespace || reference.Name != service.Name {
					t.Errorf("%s calls the Service %s/%s, want %s/%s", webhook, reference.Namespace, reference.Name, service.Namespace, service.Name)
				}
				if got := target(t, service, deployment, *reference.Port); got != reviewsPort {
					t.Errorf("%s ends at port %d of the pod, want %d", webhook, got, reviewsPort)
				}
				if len(config.CABundle) > 0 {
					t.Errorf("%s has a caBundle, which would overwrite the one of whoever issues certificates", webhook)
				}
			}
			mutating, validating := registrations(t, v)
			for i := range mutating.Webhooks {
				check(mutating.Webhooks[i].Name, "mutate", &mutating.Webhooks[i].ClientConfig)
			}
			for i := range validating.Webhooks {
				check(validating.Webhooks[i].Name, "validate", &validating.Webhooks[i].ClientConfig)
			}
			if bytes.Contains(v.text, []byte("caBundle:")) {
				t.Error("there is a caBundle, maybe an empty one")
			}
		})
	}
}

// target is the port of the pod that a port of the Service leads to.
func target(t *testing.T, service *corev1.Service, deployment *appsv1.Deployment, port int32) int32 {
	t.Helper()
	pod := deployment.Spec.Template
	if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels)) || len(service.Spec.Selector) == 0 {
		t.Fatalf("the Service selects %v, the pods are %v", service.Spec.Selector, pod.Labels)
	}
	for _, p := range service.Spec.Ports {
		if p.Port != port {
			continue
		}
		for _, c := range pod.Spec.Containers {
			for _, of := range c.Ports {
				if of.Name == p.TargetPort.StrVal || of.ContainerPort == p.TargetPort.IntVal {
					return of.ContainerPort
				}
			}
		}
	}
	t.Fatalf("the port %d of the Service leads nowhere: %v", port, service.Spec.Ports)
	return 0
}

// registrations are the webhook configurations among the objects.
func registrations(t *testing.T, v *variant) (*admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration) {
	t.Helper()
	return as[admissionregistrationv1.MutatingWebhookConfiguration](t, v.find(t, "MutatingWebhookConfiguration", name)),
		as[admissionregistrationv1.ValidatingWebhookConfiguration](t, v.find(t, "ValidatingWebhookConfiguration", name))
}

// TestSelectsOwnPods: what names pods by their labels means those of the Deployment.
func TestSelectsOwnPods(t *testing.T) {
	t.Parallel()
	for _, v := range variants(t) {
		deployment := as[appsv1.Deployment](t, v.find(t, "Deployment", name))
		pod := deployment.Spec.Template
		selectors := map[string]*metav1.LabelSelector{
			"Deployment":          deployment.Spec.Selector,
			"PodDisruptionBudget": as[policyv1.PodDisruptionBudget](t, v.find(t, "PodDisruptionBudget", name)).Spec.Selector,
		}
		if !pod.Spec.HostNetwork {
			selectors["NetworkPolicy"] = &as[networkingv1.NetworkPolicy](t, v.find(t, "NetworkPolicy", name)).Spec.PodSelector
		}
		for i := range pod.Spec.TopologySpreadConstraints {
			selectors["topology spread by "+pod.Spec.TopologySpreadConstraints[i].TopologyKey] = pod.Spec.TopologySpreadConstraints[i].LabelSelector
		}
		for what, s := range selectors {
			selector, err := metav1.LabelSelectorAsSelector(s)
			must(t, err)
			if selector.Empty() || !selector.Matches(labels.Set(pod.Labels)) {
				t.Errorf("%s: %s selects %q, the pods are %v", v.name, what, selector, pod.Labels)
			}
		}
		v.find(t, "ServiceAccount", pod.Spec.ServiceAccountName)
		if of := pod.Spec.PriorityClassName; of != "" && !strings.HasPrefix(of, "system-") {
			v.find(t, "PriorityClass", of)
		}
		for _, c := range pod.Spec.Containers {
			for probe, of := range map[string]*corev1.Probe{"/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
				if of == nil || of.HTTPGet == nil || of.HTTPGet.Path != probe {
					t.Errorf("%s: there is no probe of %s, but %v", v.name, probe, of)
					continue
				}
				for _, p := range c.Ports {
					if p.Name == of.HTTPGet.Port.StrVal && p.ContainerPort != opsPort {
						t.Errorf("%s: %s is asked for at port %d, want %d", v.name, probe, p.ContainerPort, opsPort)
					}
				}
			}
		}
	}
}

// command runs the program with arguments of a pod, outside of one, where no cluster is found. It returns the code and
// what it says.
func command(t *testing.T, args []string) (int, string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), binary(t), args...)
	c.Env = []string{"HOME=" + t.TempDir()}
	output, err := c.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), string(output)
	}
	must(t, err)
	return 0, string(output)
}

// TestArgumentsFitProgram: the program itself takes the arguments of each container: all that it finds wrong is that it is
// in no pod.
func TestArgumentsFitProgram(t *testing.T) {
	t.Parallel()
	const elsewhere = "--in-cluster: this process does not run in a pod"
	try := func(t *testing.T, args []string) (int, string) {
		t.Helper()
		args = slices.Clone(args)
		for i := range args {
			if strings.HasPrefix(args[i], "--config=") {
				args[i] = "--config=" + t.TempDir()
			}
			args[i] = strings.ReplaceAll(args[i], "$(POD_NAME)", "gatehouse-x") // which the kubelet does
		}
		return command(t, args)
	}
	containers := map[string][]string{}
	for _, v := range variants(t) {
		for _, pod := range v.pods(t) {
			for _, c := range pod.Spec.Containers {
				containers[v.name+" "+c.Name] = c.Args
			}
		}
	}
	for _, container := range slices.Sorted(maps.Keys(containers)) {
		t.Run(container, func(t *testing.T) {
			t.Parallel()
			args := containers[container]
			code, said := try(t, args)
			if code != 2 || strings.Count(said, "gatehouse: ") != 1 || !strings.Contains(said, elsewhere) {
				t.Errorf("gatehouse %q ends with %d and says %q, want nothing but %q", args, code, said, elsewhere)
			}
			// It would say so of an argument that it does not take.
			_, said = try(t, append(slices.Clone(args), "--no-such-flag"))
			if strings.Contains(said, elsewhere) || !strings.Contains(said, "--no-such-flag") {
				t.Errorf("an unknown flag is not found: %q", said)
			}
		})
	}
}
