package install

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// pods are those of a variant, the ones of Helm's hooks included, by kind and name.
func (v *variant) pods(t *testing.T) map[string]corev1.PodTemplateSpec {
	t.Helper()
	pods := map[string]corev1.PodTemplateSpec{}
	for _, o := range v.objects {
		key := o.GetKind() + " " + o.GetName()
		switch o.GetKind() {
		case "Deployment":
			pods[key] = as[appsv1.Deployment](t, o).Spec.Template
		case "Job":
			pods[key] = as[batchv1.Job](t, o).Spec.Template
		case "Pod":
			pod := as[corev1.Pod](t, o)
			pods[key] = corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
		}
	}
	if len(pods) == 0 {
		t.Fatalf("%s has no pods", v.name)
	}
	return pods
}

// violations are what the Pod Security Standard "restricted" has against a pod.
func violations(t *testing.T, pod corev1.PodTemplateSpec) []string {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	must(t, err)
	var found []string
	for _, result := range evaluator.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}, &pod.ObjectMeta, &pod.Spec) {
		if !result.Allowed {
			found = append(found, result.ForbiddenReason)
		}
	}
	return found
}

// TestPodSecurity: every pod that is installed, and each of Helm's hooks, is one of the Pod Security Standard "restricted". The network of
// the node is the only thing that takes one out of it.
func TestPodSecurity(t *testing.T) {
	t.Parallel()
	for _, v := range variants(t) {
		for name, pod := range v.pods(t) {
			var want []string
			if pod.Spec.HostNetwork {
				want = []string{"host namespaces", "hostPort"}
			}
			if found := violations(t, pod); !slices.Equal(found, want) {
				t.Errorf("%s: %s violates %q, want %q", v.name, name, found, want)
			}
			if c := pod.Spec.Containers[0]; c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
				t.Errorf("%s: the root file system of %s can be written", v.name, name)
			}
		}
	}
}

// TestArbitraryUser: with the values for OpenShift no pod has a fixed user or group, and still an unknown user can read the files that are
// mounted and write where the program writes. The same chart without them fixes all three, and keeps the files from others.
func TestArbitraryUser(t *testing.T) {
	t.Parallel()
	everything := []string{
		recordingOn, `recording.config={"sampling":{"default":1}}`,
		`authentication.clientCASecret="client-ca"`, `certificates={"source":"files","files":{"secretName":"tls"}}`,
	}
	fixed := chartedWith(t, everything...)
	free := chartedWith(t, append([]string{`podSecurityContext={"runAsUser":null,"runAsGroup":null,"fsGroup":null}`}, everything...)...)
	for _, v := range []*variant{charted(t, "openshift"), free} {
		for name, pod := range v.pods(t) {
			p, c := pod.Spec.SecurityContext, pod.Spec.Containers[0].SecurityContext
			if p.RunAsUser != nil || p.RunAsGroup != nil || p.FSGroup != nil || p.SupplementalGroups != nil || c.RunAsUser != nil || c.RunAsGroup != nil {
				t.Errorf("%s: %s has a fixed user or group: %v, %v", v.name, name, p, c)
			}
		}
	}
	const owner, everybody = 0o440, 0o444
	modes := func(v *variant, want int32) {
		t.Helper()
		pod := v.pods(t)["Deployment "+name].Spec
		writable, files := 0, 0
		for _, m := range pod.Containers[0].VolumeMounts {
			volume := pod.Volumes[slices.IndexFunc(pod.Volumes, func(volume corev1.Volume) bool { return volume.Name == m.Name })]
			mode := new(int32)
			switch {
			case volume.EmptyDir != nil:
				writable++ // the kubelet creates it with mode 0777
				continue
			case volume.Projected != nil:
				mode = volume.Projected.DefaultMode
			case volume.Secret != nil:
				mode = volume.Secret.DefaultMode
			case volume.ConfigMap != nil:
				mode = volume.ConfigMap.DefaultMode
			}
			if files++; *mode != want || !m.ReadOnly {
				t.Errorf("%s: the volume %s has the mode %o and is read-only: %v, want %o and true", v.name, m.Name, *mode, m.ReadOnly, want)
			}
		}
		if writable != 1 || files != 4 {
			t.Errorf("%s: there are %d volumes to write to and %d with files, want 1 and 4", v.name, writable, files)
		}
	}
	modes(fixed, owner)
	modes(free, everybody)
	if p := fixed.pods(t)["Deployment "+name].Spec.SecurityContext; p.RunAsUser == nil || *p.RunAsUser != 65532 || p.FSGroup == nil || *p.FSGroup != 65532 {
		t.Errorf("without the values for OpenShift, the security context is %v", p)
	}
}

// TestHostNetwork: pods in the network of their nodes have their ports there, resolve names of the cluster, and can be rolled out on as
// many nodes as there are replicas. What would only look like protection is not there.
func TestHostNetwork(t *testing.T) {
	t.Parallel()
	v := chartedWith(t, `hostNetwork=true`, `ports={"reviews":19443,"ops":18080}`, `namespace.create=true`)
	deployment := as[appsv1.Deployment](t, v.find(t, "Deployment", name))
	pod := deployment.Spec.Template.Spec
	if !pod.HostNetwork || pod.DNSPolicy != corev1.DNSClusterFirstWithHostNet {
		t.Errorf("the network of the node is used: %v, with the DNS policy %q", pod.HostNetwork, pod.DNSPolicy)
	}
	if unavailable := deployment.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue(); unavailable != 1 {
		t.Errorf("a rollout stops %d replicas first, want 1", unavailable)
	}
	want := []corev1.ContainerPort{
		{Name: "reviews", ContainerPort: 19443, HostPort: 19443, Protocol: corev1.ProtocolTCP}, {Name: "ops", ContainerPort: 18080, HostPort: 18080, Protocol: corev1.ProtocolTCP},
	}
	if !slices.Equal(pod.Containers[0].Ports, want) {
		t.Errorf("the ports are %v, want %v", pod.Containers[0].Ports, want)
	}
	for _, arg := range []string{"--listen=:19443", "--ops-listen=:18080"} {
		if !slices.Contains(pod.Containers[0].Args, arg) {
			t.Errorf("the arguments %q lack %s", pod.Containers[0].Args, arg)
		}
	}
	if slices.ContainsFunc(v.objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "NetworkPolicy" }) {
		t.Error("there is a NetworkPolicy, which has no effect")
	}
	if level := v.find(t, "Namespace", system).GetLabels()["pod-security.kubernetes.io/enforce"]; level != "privileged" {
		t.Errorf("the namespace has the level %q, which does not allow the pods", level)
	}
	if got := as[corev1.Service](t, v.find(t, "Service", name)); got.Spec.Ports[0].Port != 443 || target(t, got, deployment, 443) != 19443 {
		t.Errorf("the Service has the ports %v", got.Spec.Ports)
	}
}

// TestServiceAccount: one that somebody else creates has all that the chart's own would have.
func TestServiceAccount(t *testing.T) {
	t.Parallel()
	const account = "platform-gatehouse"
	everything := []string{`audit={"enabled":true,"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["list"]}]}`, `rbac.extraRules=[{"apiGroups":[""],"resources":["nodes"],"verbs":["get"]}]`}
	own := chartedWith(t, everything...)
	other := chartedWith(t, append([]string{`serviceAccount={"create":false,"name":"` + account + `"}`}, everything...)...)
	own.find(t, "ServiceAccount", name)
	if slices.ContainsFunc(other.objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "ServiceAccount" && !isHook(o) }) {
		t.Error("a ServiceAccount is created")
	}
	// Subjects of rights and flow schemas, and the arguments of the guard.
	subject := regexp.MustCompile(`(?m)kind: ServiceAccount\n +(?:name|serviceAccount:\n +name): (` + name + `|` + account + `)$`)
	before, after := subject.FindAllSubmatch(own.text, -1), subject.FindAllSubmatch(other.text, -1)
	if len(before) < 9 || len(after) != len(before) || slices.ContainsFunc(after, func(m [][]byte) bool { return string(m[1]) != account }) {
		t.Errorf("%d subjects are %s, and with the other ServiceAccount %d of %q", len(before), name, len(after), after)
	}
	if got := other.pods(t)["Deployment "+name].Spec.ServiceAccountName; got != account {
		t.Errorf("the pods have the ServiceAccount %q", got)
	}
	if guard := "system:serviceaccount:" + system + ":"; strings.Count(string(other.text), guard+account+`"`) != 1 || strings.Contains(string(other.text), guard+name) {
		t.Errorf("the guard is not for %s%s", guard, account)
	}
}

// TestRegistrationValues: namespaces that send nothing are in the annotation by which the program excludes them, and what people set of
// webhooks is in each.
func TestRegistrationValues(t *testing.T) {
	t.Parallel()
	v := chartedWith(t, `webhooks={"excludeNamespaces":["calico-system"],"includeResources":["secrets","*.rbac.authorization.k8s.io"],"failurePolicy":"Ignore","mutate":{"timeoutSeconds":7},"annotations":{"a":"b"}}`)
	mutating, validating := registrations(t, v)
	for _, annotations := range []map[string]string{mutating.Annotations, validating.Annotations} {
		if got := annotations["gatehouse.dev/excluded-namespaces"]; got != "calico-system,cert-manager,gatehouse-system,kube-node-lease,kube-system" || annotations["a"] != "b" || annotations["gatehouse.dev/included-resources"] != "secrets,*.rbac.authorization.k8s.io" {
			t.Errorf("the annotations are %v", annotations)
		}
	}
	for _, w := range mutating.Webhooks {
		if *w.TimeoutSeconds != 7 || *w.FailurePolicy != admissionregistrationv1.Ignore || len(w.Rules) > 0 {
			t.Errorf("%s has %d s, %s and %d rules", w.Name, *w.TimeoutSeconds, *w.FailurePolicy, len(w.Rules))
		}
	}
	own := chartedWith(t, `webhooks.create=false`)
	for _, o := range own.objects {
		if strings.HasSuffix(o.GetKind(), "WebhookConfiguration") || o.GetKind() == "ClusterRole" && o.GetName() == "gatehouse-registration" {
			t.Errorf("without webhooks.create there is a %s", o.GetKind())
		}
	}
	if args := own.pods(t)["Deployment "+name].Spec.Containers[0].Args; slices.Contains(args, "--manage-registration") {
		t.Errorf("the arguments are %q", args)
	}
}

// TestOptionsHaveRights: the rights of an option are there with it alone.
func TestOptionsHaveRights(t *testing.T) {
	t.Parallel()
	rules := func(v *variant) int {
		list, _, err := unstructured.NestedSlice(v.find(t, "ClusterRole", "gatehouse-resources").Object, "rules")
		must(t, err)
		return len(list)
	}
	without := rules(helm(t))
	if with := rules(chartedWith(t, `authentication.backChannelLogout="24h"`)); with != without+1 {
		t.Errorf("%d rules become %d", without, with)
	}
}

// TestNetworkPolicyAllowsTest: a NetworkPolicy that lists the API servers lets the Pod of "helm test" through too.
func TestNetworkPolicyAllowsTest(t *testing.T) {
	t.Parallel()
	v := chartedWith(t, `networkPolicy.reviewsFrom=[{"ipBlock":{"cidr":"192.0.2.0/24"}}]`)
	ingress, _, err := unstructured.NestedSlice(v.find(t, "NetworkPolicy", name).Object, "spec", "ingress")
	must(t, err)
	from, _, err := unstructured.NestedSlice(ingress[0].(map[string]any), "from")
	must(t, err)
	if len(from) != 2 {
		t.Fatalf("reviews are allowed from %v", from)
	}
	selector, _, err := unstructured.NestedStringMap(from[1].(map[string]any), "podSelector", "matchLabels")
	must(t, err)
	pods := v.pods(t)
	matches := func(pod string) bool { return labels.SelectorFromSet(selector).Matches(labels.Set(pods[pod].Labels)) }
	if len(selector) == 0 || !matches("Pod gatehouse-test") || matches("Deployment "+name) {
		t.Errorf("it selects %v, and the pods are %v", selector, pods)
	}
	service := as[corev1.Service](t, v.find(t, "Service", name))
	if labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pods["Pod gatehouse-test"].Labels)) {
		t.Error("the Service sends reviews to the Pod of helm test")
	}
}
