package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// What 'gatehouse manifests' prints makes the API server ask again after others, and for dry runs too.
func TestMutatingRegistration(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	registered, err := w.Client().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), "gatehouse", metav1.GetOptions{})
	must(t, err)
	if len(registered.Webhooks) != 2 {
		t.Errorf("there are %d webhooks", len(registered.Webhooks))
	}
	for i := range registered.Webhooks {
		hook := &registered.Webhooks[i]
		if *hook.ReinvocationPolicy != admissionregistrationv1.IfNeededReinvocationPolicy || *hook.SideEffects != admissionregistrationv1.SideEffectClassNone {
			t.Errorf("%s: reinvocationPolicy %s, sideEffects %s", hook.Name, *hook.ReinvocationPolicy, *hook.SideEffects)
		}
	}
}

// A container that another webhook adds gets what the pod's own containers get, whether that webhook comes before ours
// or after.
func TestContainersOfOtherWebhooks(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	const before, after = "aaa-app-before-gatehouse", "zzz-app-after-gatehouse"
	for _, name := range []string{before, after} {
		w.addContainers(t, name, "order", "containers", metav1.LabelSelector{MatchLabels: map[string]string{name: "wanted"}})
	}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want []string // the containers
	}{
		"app-before": {pod("app-before", labelled(before, "wanted")), []string{before, "app"}},
		"app-after":  {pod("app-after", labelled(after, "wanted")), []string{after, "app"}},
		"app-both":   {pod("app-both", labelled(before, "wanted"), labelled(after, "wanted")), []string{after, before, "app"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods := w.Client().CoreV1().Pods("order")
			support.Eventually(t, "the other webhooks", func() error {
				tried, err := pods.Create(t.Context(), test.pod.DeepCopy(), dryRun)
				if err == nil && len(tried.Spec.Containers) != len(test.want) {
					err = fmt.Errorf("there are %d containers", len(tried.Spec.Containers))
				}
				return err
			})
			created, err := pods.Create(t.Context(), test.pod, metav1.CreateOptions{})
			must(t, err)
			if injected(created) != 1 || !slices.Equal(names(created), []string{shipper}) {
				t.Errorf("injected %d times: %v", injected(created), names(created))
			}
			var got []string
			for i := range created.Spec.Containers {
				c := &created.Spec.Containers[i]
				got = append(got, c.Name)
				mounts := 0
				for k := range c.VolumeMounts {
					if m := &c.VolumeMounts[k]; m.Name == "logs" && m.MountPath == "/var/log/app" && !m.ReadOnly {
						mounts++
					}
				}
				if mounts != 1 {
					t.Errorf("container %q has the mount %d times: %v", c.Name, mounts, c.VolumeMounts)
				}
				if trail := "/spec/containers/name=" + c.Name + "/volumeMounts/"; strings.Count(created.Annotations[statusAnnotation], trail) != 1 {
					t.Errorf("the status does not list %s once: %s", trail, created.Annotations[statusAnnotation])
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got the containers %q, want %q", got, test.want)
			}
		})
	}
}

// A debug container joins a pod with sidecars as any other, and stays as it was asked for.
func TestEphemeralContainersAreLeftAlone(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	pods := w.Client().CoreV1().Pods("inject")
	created, err := pods.Create(t.Context(), pod("debugged"), metav1.CreateOptions{})
	must(t, err)
	changed := created.DeepCopy()
	changed.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debugger", Image: "registry.example/debug:1",
		VolumeMounts: []corev1.VolumeMount{{Name: "logs", MountPath: "/logs"}},
	}}}
	_, err = pods.UpdateEphemeralContainers(t.Context(), created.Name, changed, metav1.UpdateOptions{})
	must(t, err)
	debugged, err := pods.Get(t.Context(), created.Name, metav1.GetOptions{})
	must(t, err)
	if injected(debugged) != 1 || debugged.Annotations[statusAnnotation] != created.Annotations[statusAnnotation] {
		t.Errorf("the pod has become %v", debugged)
	}
	c := debugged.Spec.EphemeralContainers
	if len(c) != 1 || c[0].Name != "debugger" || len(c[0].Env) > 0 || len(c[0].VolumeMounts) != 1 || c[0].VolumeMounts[0].MountPath != "/logs" {
		t.Errorf("the debug container is %v", c)
	}
}

// The pod of a Job gets a native sidecar, which ends with it, and not a container that would keep it from ending.
func TestJobs(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	template := corev1.PodTemplateSpec{ObjectMeta: pod("", asking, labelled("agent", "wanted")).ObjectMeta, Spec: pod("").Spec}
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	_, err := w.Client().BatchV1().Jobs("inject").Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: batchv1.JobSpec{Template: template},
	}, metav1.CreateOptions{})
	must(t, err)
	var of corev1.Pod
	support.Eventually(t, "the Job's pod", func() error {
		list, err := w.Client().CoreV1().Pods("inject").List(t.Context(), metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=job"})
		if err == nil && len(list.Items) != 1 {
			err = fmt.Errorf("there are %d", len(list.Items))
		}
		if err == nil {
			of = list.Items[0]
		}
		return err
	})
	if injected(&of) != 1 || len(of.Spec.Containers) != 1 {
		t.Errorf("the Job's pod has %q and %v", names(&of), of.Spec.Containers)
	}
}

// auditedReasons wants reasons in the audit log's event about the creation of a pod.
func (w *world) auditedReasons(namespace, name string, want ...string) error {
	annotations, err := w.audited("create", "pods", namespace, name)
	if err != nil {
		return err
	}
	var got []string
	for _, hook := range []string{"default", "asked"} {
		for _, key := range []string{sidecar.AuditKey, sidecar.AuditKeyAgain} {
			got = append(got, strings.Split(annotations[hook+".mutate.gatehouse.dev/"+key], ",")...)
		}
	}
	for _, reason := range want {
		if !slices.Contains(got, reason) {
			return fmt.Errorf("the audit log says %q of %s, want %q in it", got, name, reason)
		}
	}
	return nil
}

// Whatever becomes of a profile, the audit log has the reason, and the client is warned where the pod gets less than
// it asks for.
func TestEveryReason(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	onPort := func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 9901}} }
	tests := []struct {
		name, namespace string
		edits           []func(*corev1.Pod)
		reasons         []string
		// refused is what a refusal says, and warned are parts of all warnings, in order.
		refused string
		warned  []string
	}{
		{name: "applied", reasons: []string{"modest=applied", "paused=not-in-rollout", "log-shipper=namespace-not-selected", "new=object-not-selected"}},
		{name: "rolled-out", edits: []func(*corev1.Pod){labelled("rolled", "out")}, reasons: []string{"new=applied", "old=replaced"}},
		{name: "by-the-old-name", edits: []func(*corev1.Pod){labelled("rolled", "out"), saying("old")}, reasons: []string{"new=applied", "old=replaced"}},
		{
			name: "named", edits: []func(*corev1.Pod){saying("paused,-modest")}, reasons: []string{"modest=declined", "paused=not-in-rollout"},
			warned: []string{`sidecar.gatehouse.dev/inject asks for sidecar profile "paused", which is not applied: the workload is not in the share of its rollout`},
		},
		{
			name: "named-elsewhere", edits: []func(*corev1.Pod){saying("log-shipper")}, reasons: []string{"log-shipper=namespace-not-selected", "modest=applied"},
			warned: []string{`asks for sidecar profile "log-shipper", which is not applied: it does not select the namespace`},
		},
		{
			name: "unknown-name", edits: []func(*corev1.Pod){saying("log-shiper")}, reasons: []string{"modest=refused"},
			refused: `metadata.annotations[sidecar.gatehouse.dev/inject]: "log-shiper" is not the name of a sidecar profile: allowed are "true", "false", or names of profiles, with a minus to decline: "mesh,-logs" (hint: did you mean "log-shipper"?)`,
		},
		{name: "small", edits: []func(*corev1.Pod){labelled("small", "")}, reasons: []string{"modest=condition-false"}},
		{
			name: "conflict", edits: []func(*corev1.Pod){onPort}, reasons: []string{"modest=conflict"},
			warned: []string{`sidecar profile "modest" is not applied: spec.containers[0].ports[0].containerPort: containerPort 9901/TCP is declared by container "modest" of sidecar profile "modest" too`},
		},
		{name: "other-port", edits: []func(*corev1.Pod){onPort, annotated("modest.sidecar.gatehouse.dev/port", "9902")}, reasons: []string{"modest=applied"}},
		{
			name: "invalid-parameter", edits: []func(*corev1.Pod){annotated("modest.sidecar.gatehouse.dev/port", "http")}, reasons: []string{"modest=invalid-parameter"},
			warned: []string{`sidecar profile "modest" is not applied: metadata.annotations[modest.sidecar.gatehouse.dev/port]: "http" is not allowed: allowed is a port from 1 to 65535`},
		},
		{
			name: "unknown-parameter", edits: []func(*corev1.Pod){annotated("modest.sidecar.gatehouse.dev/prot", "1")}, reasons: []string{"modest=refused"},
			refused: `metadata.annotations[modest.sidecar.gatehouse.dev/prot]: "prot" is not a parameter of sidecar profile "modest" (hint: did you mean "port"?)`,
		},
		{
			name: "host-process", edits: []func(*corev1.Pod){func(p *corev1.Pod) {
				p.Spec.HostNetwork, p.Spec.OS = true, &corev1.PodOS{Name: corev1.Windows}
				p.Spec.SecurityContext = &corev1.PodSecurityContext{WindowsOptions: &corev1.WindowsSecurityContextOptions{HostProcess: new(true)}}
			}}, reasons: []string{"modest=host-process"},
		},
		{
			name: "reason-windows", namespace: "inject", reasons: []string{"log-shipper=operating-system"},
			edits: []func(*corev1.Pod){func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }},
		},
		{name: "static", edits: []func(*corev1.Pod){annotated("kubernetes.io/config.mirror", "x"), func(p *corev1.Pod) { p.Spec.NodeName = "node-of-static-pods" }}, reasons: []string{"modest=static-pod"}},
		{name: "reason-host", namespace: "inject", edits: []func(*corev1.Pod){func(p *corev1.Pod) { p.Spec.HostNetwork = true }}, reasons: []string{"log-shipper=host-network"}},
		{name: "reason-silent", namespace: "inject", edits: []func(*corev1.Pod){labelled("agent", "wanted")}, reasons: []string{"agent=not-asked", "log-shipper=applied"}},
		{name: "reason-copy", namespace: "inject", edits: []func(*corev1.Pod){annotated(statusAnnotation, `{"profiles":[]}`)}, reasons: []string{"log-shipper=applied"}},
		{
			name: "reason-job", namespace: "inject", edits: []func(*corev1.Pod){asking, labelled("agent", "wanted"), func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }},
			reasons: []string{"agent=must-end", "log-shipper=applied"},
			warned:  []string{`sidecar profile "agent" is not applied: its container "agent" would keep the pod from ending (restartPolicy: OnFailure); a native sidecar would not`},
		},

		{name: "asks", namespace: "word-asks", edits: []func(*corev1.Pod){labelled("agent", "wanted")}, reasons: []string{"agent=applied", "log-shipper=applied", "worded=applied"}},
		{name: "asks-pod-declines", namespace: "word-asks", edits: []func(*corev1.Pod){saying("-worded")}, reasons: []string{"worded=declined", "log-shipper=applied", "log-shipper=already-there"}},
		{name: "asks-pod-wants-none", namespace: "word-asks", edits: []func(*corev1.Pod){saying("false")}, reasons: []string{"worded=declined", "log-shipper=declined"}},
		{name: "declines", namespace: "word-declines", reasons: []string{"log-shipper=declined-by-namespace"}},
		{name: "declines-pod-asks", namespace: "word-declines", edits: []func(*corev1.Pod){asking}, reasons: []string{"log-shipper=applied"}},
		{name: "declines-one", namespace: "word-declines-one", reasons: []string{"log-shipper=declined-by-namespace", "worded=applied"}},
		{
			name: "misspelt", namespace: "word-misspelt", reasons: []string{"log-shipper=applied", "worded=not-asked"},
			warned: []string{`the annotation sidecar.gatehouse.dev/inject of namespace "word-misspelt" is ignored: "wordy" is not the name of a sidecar profile`},
		},

		// The API server's own plug-in never comes to refuse a pod for what a profile adds.
		{
			name: "unclean", namespace: "strict-refuse", edits: []func(*corev1.Pod){func(p *corev1.Pod) { restricted(p) }}, reasons: []string{"unclean-refuse=refused"},
			refused: `spec: with what sidecar profile "unclean-refuse" adds, the pod violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "unclean" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "unclean" must set securityContext.capabilities.drop=["ALL"]), which namespace "strict-refuse" enforces`,
		},
		{
			name: "unclean", namespace: "strict-skip", edits: []func(*corev1.Pod){func(p *corev1.Pod) { restricted(p) }}, reasons: []string{"unclean-skip=pod-security"},
			warned: []string{`sidecar profile "unclean-skip" is not applied: with what sidecar profile "unclean-skip" adds, the pod violates PodSecurity "restricted:latest": `},
		},
	}
	for _, reason := range sidecar.Reasons() {
		if reason == sidecar.NamespaceUnknown || reason == sidecar.Unknown {
			continue // The answer is an error, and holds nothing else.
		}
		tested := false
		for i := range tests {
			tested = tested || slices.ContainsFunc(tests[i].reasons, func(r string) bool { return strings.HasSuffix(r, "="+string(reason)) })
		}
		if !tested {
			t.Errorf("no case has the reason %q", reason)
		}
	}
	for _, test := range tests {
		if test.namespace == "" {
			test.namespace = "reasons"
		}
		t.Run(test.namespace+"/"+test.name, func(t *testing.T) {
			t.Parallel()
			client, warnings := w.impersonating(t, nil)
			_, err := client.CoreV1().Pods(test.namespace).Create(t.Context(), pod(test.name, test.edits...), metav1.CreateOptions{})
			if test.refused != "" {
				err = refusal(err, 422, test.refused, `.mutate.gatehouse.dev" denied the request`)
			}
			if err != nil {
				t.Error(err)
			}
			got := warnings()
			for i, want := range test.warned {
				if i >= len(got) || !strings.Contains(got[i], want) {
					t.Errorf("got the warnings %q, want %q", got, test.warned)
				}
			}
			if len(got) > len(test.warned) {
				t.Errorf("got the warnings %q, want %q", got, test.warned)
			}
			support.Eventually(t, "the audit log", func() error {
				return w.auditedReasons(test.namespace, test.name, test.reasons...)
			})
		})
	}
}

func annotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[key] = value }
}

// What cannot be told goes by the failurePolicy: a pod that asks is refused, and with any other the API server goes on,
// here to what fails closed for the same reason.
func TestUnknownNamespace(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	const namespace = "kube-public" // There is no document about it.
	pods := w.Client().CoreV1().Pods(namespace)
	_, err := pods.Create(t.Context(), pod("asking", asking), dryRun)
	err = refusal(err, 500, `failed calling webhook "asked.mutate.gatehouse.dev"`)
	if err != nil {
		t.Error(err)
	}
	_, err = pods.Create(t.Context(), pod("silent"), dryRun)
	err = refusal(err, 422, `admission webhook "fail.validate.gatehouse.dev" denied the request`, `namespace "kube-public" is not known`)
	if err != nil {
		t.Errorf("a silent pod: %v", err)
	}
}
