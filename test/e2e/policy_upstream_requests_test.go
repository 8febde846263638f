package e2e

import (
	"context"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
)

// oldScaler is an autoscaler in its older version.
func oldScaler(name, policy string, target int32) *autoscalingv1.HorizontalPodAutoscaler {
	return &autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"upstream": policy}},
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "d"},
			MaxReplicas:    3, TargetCPUUtilizationPercentage: &target,
		},
	}
}

// newScaler is the same in its newer version.
func newScaler(name, policy string, target int32) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"upstream": policy}},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "d"},
			MaxReplicas:    3,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &target},
			}}},
		},
	}
}

func comparedRequests() []*compared {
	type call = func(ctx context.Context, client kubernetes.Interface, namespace string) error
	create := func(policy string, data ...string) call {
		return func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, configMap("x", map[string]string{"upstream": policy}, data...), dryRun)
			return err
		}
	}
	admin := func(name string, refused bool, ask call) *compared { return &compared{name, refused, nil, ask} }
	as := func(user, name string, refused bool, ask call) *compared {
		return &compared{user + ", " + name, refused, &authenticationv1.UserInfo{Username: user, Groups: []string{"upstream"}}, ask}
	}
	// Nobody is there to be connected to.
	connected := func(err error) error {
		if err != nil && !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
			return nil
		}
		return err
	}
	connect := func(subresource string, options runtime.Object) call {
		return func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			return connected(client.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name("p").SubResource(subresource).
				VersionedParams(options, scheme.ParameterCodec).Do(ctx).Error())
		}
	}
	proxy := func(resource, path string) call {
		return func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			return connected(client.CoreV1().RESTClient().Get().Namespace(namespace).Resource(resource).Name("p").SubResource("proxy").Suffix(path).Do(ctx).Error())
		}
	}
	remove := func(name string, policy metav1.DeletionPropagation) call {
		return func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			return client.CoreV1().ConfigMaps(namespace).Delete(ctx, name, metav1.DeleteOptions{DryRun: dryRun.DryRun, PropagationPolicy: &policy})
		}
	}
	evict := func(name string) call {
		return func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			return client.PolicyV1().Evictions(namespace).Evict(ctx, &policyv1.Eviction{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, DeleteOptions: &metav1.DeleteOptions{DryRun: dryRun.DryRun},
			})
		}
	}
	bind := func(node string) call {
		return func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			return client.CoreV1().Pods(namespace).Bind(ctx, &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
			}, dryRun)
		}
	}
	issue := func(audiences ...string) call {
		return func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			_, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "default", &authenticationv1.TokenRequest{
				Spec: authenticationv1.TokenRequestSpec{Audiences: audiences},
			}, dryRun)
			return err
		}
	}
	patch := func(kind types.PatchType, name, text string) call {
		options := metav1.PatchOptions{DryRun: dryRun.DryRun, FieldManager: "upstream-test"}
		if kind == types.ApplyPatchType {
			options.Force = new(true)
		}
		return func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			_, err := client.CoreV1().ConfigMaps(namespace).Patch(ctx, name, kind, []byte(text), options)
			return err
		}
	}
	applied := func(name string) call {
		return patch(types.ApplyPatchType, name, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+name+`","labels":{"upstream":"requests"}},"data":{"applied":"x","pass":"no"}}`)
	}
	older := func(policy string, target int32) call {
		return func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			_, err := client.AutoscalingV1().HorizontalPodAutoscalers(namespace).Create(ctx, oldScaler("h", policy, target), dryRun)
			return err
		}
	}
	newer := func(policy string, target int32) call {
		return func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			_, err := client.AutoscalingV2().HorizontalPodAutoscalers(namespace).Create(ctx, newScaler("h", policy, target), dryRun)
			return err
		}
	}
	replaced := func(target int32) call {
		return func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			_, err := client.AutoscalingV2().HorizontalPodAutoscalers(namespace).Update(ctx, newScaler("stored", "scalers", target), metav1.UpdateOptions{DryRun: dryRun.DryRun})
			return err
		}
	}
	thing := func(count string) call {
		return func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			return client.CoreV1().RESTClient().Post().AbsPath("/apis/upstream.example.com/v1/namespaces/"+namespace+"/things").Param("dryRun", "All").
				SetHeader("Content-Type", "application/json").Body([]byte(`{"apiVersion":"upstream.example.com/v1","kind":"Thing","metadata":{"name":"x","labels":{"upstream":"things"}},
				"spec":{"count":` + count + `,"big":9007199254740993,"ratio":1.25,"list":[{"a":"b"}],"nothing":null,"with-dash":1,"namespace":"n"}}`)).Do(ctx).Error()
		}
	}
	named := func(name string) call {
		return func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			c := configMap(name, map[string]string{"upstream": "excluded"})
			if name == "" {
				c.GenerateName = "free"
			}
			_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, c, dryRun)
			return err
		}
	}
	debug := func(image string) call {
		return func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			p, err := client.CoreV1().Pods(namespace).Get(ctx, "p", metav1.GetOptions{})
			if err != nil {
				return err
			}
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", Image: image}}}
			_, err = client.CoreV1().Pods(namespace).UpdateEphemeralContainers(ctx, "p", p, metav1.UpdateOptions{DryRun: dryRun.DryRun})
			return err
		}
	}
	shaped := map[string]string{"upstream": "shapes"}
	somebody := &authenticationv1.UserInfo{
		Username: "somebody", UID: "42", Groups: []string{"system:masters", "others"},
		Extra: map[string]authenticationv1.ExtraValue{"upstream.example/x": {"one", "two"}},
	}
	long := strings.Repeat("x", 5*1024)

	return []*compared{
		admin("several params, within all", false, create("ceilings", "size=5")),
		admin("several params, above one", true, create("ceilings", "size=15")),
		admin("several params, an error with each", true, create("ceilings", "other=15")),
		admin("param of another namespace, within", false, create("elsewhere", "a=1")),
		admin("param of another namespace, beyond", true, create("elsewhere", "a=1", "b=2")),
		admin("param of the cluster, not in it", false, create("cluster", "verb=get")),
		admin("param of the cluster, in it", true, create("cluster", "verb=forbidden")),
		admin("param of the cluster, missing", true, create("cluster-missing")),
		admin("param of the cluster, in a namespace", true, create("cluster-namespaced")),
		admin("no params by selector, whatever the actions", true, create("missing")),
		admin("no params by selector, allowed", false, create("missing-allowed")),
		admin("no params by selector, ignored", false, create("missing-ignored")),
		admin("binding without params", true, create("unbound-params", "a=1")),

		as("ann", "who may everything", false, create("rights")),
		as("bob", "who may not read", true, create("rights")),
		as("carl", "who may not frobnicate", true, create("rights")),
		as("dora", "who may not delete", true, create("rights")),
		as("ann", "who is trusted", false, create("trusted")),
		as("bob", "who is not trusted", true, create("trusted")),

		admin("chain, small", false, create("chains", "x=4", "mode=none")),
		admin("chain, large", true, create("chains", "x=5", "mode=none")),
		admin("chain, absent", false, create("chains", "mode=none")),
		admin("chain, broken at its beginning", true, create("chains", "x=abc", "mode=none")),
		admin("chain, broken only where it is asked for", true, create("chains", "mode=lazy", "zero=0")),
		admin("chain, without its beginning", true, create("chains", "mode=lazy")),
		admin("chain, whole", false, create("chains", "mode=lazy", "zero=1")),
		admin("chain, a list", false, create("chains", "mode=names", "right=x")),
		admin("chain, a list in the message", true, create("chains", "mode=names", "wrong=x")),

		admin("message of two lines", true, create("messages", "case=lines")),
		admin("message of blanks", true, create("messages", "case=blank")),
		admin("message too long", true, create("messages", "case=long", "text="+long+"x")),
		admin("message nearly too long", true, create("messages", "case=nearly-long", "text="+long)),
		admin("message with spaces", true, create("messages", "case=spaces")),
		admin("message that fails", true, create("messages", "case=error")),
		admin("message in Unicode", true, create("messages", "case=unicode", "text=日本語")),
		admin("message that is fixed", true, create("messages", "case=static")),
		admin("message that is an expression of two lines", true, create("messages", "case=folded")),
		admin("no message", false, create("messages", "case=none")),

		admin("conditions, both true", true, create("conditions", "a=1", "b=1")),
		admin("conditions, both fail", true, create("conditions", "c=1")),
		admin("conditions, the second fails", true, create("conditions", "a=1")),
		admin("conditions, the first fails and the second is false", false, create("conditions", "b=2")),
		admin("conditions, the first is false and the second fails", false, create("conditions", "a=2")),
		admin("conditions ignored, both true", true, create("conditions-ignored", "a=1", "b=1")),
		admin("conditions ignored, both fail", false, create("conditions-ignored", "c=1")),

		admin("annotations and warnings", false, create("noted", "a=1", "b=2")),
		admin("annotation that fails", true, create("noted-badly")),
		admin("annotation that does not", false, create("noted-badly", "missing=no")),
		admin("annotation that fails, ignored", false, create("noted-badly-ignored")),
		admin("annotation that fails, ignored, beside a violation", true, create("noted-badly-ignored", "b=1")),

		admin("attach", false, connect("attach", &corev1.PodAttachOptions{Container: "app", Stdout: true})),
		admin("attach, refused", true, connect("attach", &corev1.PodAttachOptions{Container: "app", Stdin: true})),
		admin("portforward", false, connect("portforward", &corev1.PodPortForwardOptions{Ports: []int32{8080}})),
		admin("portforward, refused", true, connect("portforward", &corev1.PodPortForwardOptions{Ports: []int32{22, 8080}})),
		admin("portforward without ports", true, connect("portforward", &corev1.PodPortForwardOptions{})),
		admin("proxy to a pod", false, proxy("pods", "public")),
		admin("proxy to a pod, refused", true, proxy("pods", "admin/x")),
		admin("proxy to a service, refused", true, proxy("services", "admin/x")),

		admin("deletion", false, remove("gone", metav1.DeletePropagationBackground)),
		admin("deletion of what is kept", true, remove("kept", metav1.DeletePropagationBackground)),
		admin("deletion that orphans", true, remove("gone", metav1.DeletePropagationOrphan)),
		admin("deletion of a collection", true, func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			return client.CoreV1().ConfigMaps(namespace).DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dryRun.DryRun},
				metav1.ListOptions{LabelSelector: "upstream=deleted", FieldSelector: "metadata.name=kept"})
		}),
		admin("eviction", false, evict("p")),
		admin("eviction, refused", true, evict("stays")),
		admin("binding of a pod", false, bind("node")),
		admin("binding of a pod, refused", true, bind("forbidden")),
		admin("token", false, issue("here")),
		admin("token, refused", true, issue("here", "elsewhere")),

		admin("request to create", true, create("requests", "pass=no")),
		{"request of somebody with everything", true, somebody, create("requests", "pass=no")},
		admin("request to apply what is new", true, applied("new")),
		admin("request to apply what is stored", true, applied("stored")),
		admin("request to merge", true, patch(types.MergePatchType, "stored", `{"data":{"pass":"no"}}`)),
		admin("request to merge, passed", false, patch(types.StrategicMergePatchType, "stored", `{"data":{"more":"x"}}`)),
		admin("shape of a pod", true, func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			p := pod("x")
			p.Labels, p.Annotations = shaped, nil
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0.5"), corev1.ResourceMemory: resource.MustParse("1024Mi")}
			p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("web")}}}
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "web", ContainerPort: 80}}
			_, err := client.CoreV1().Pods(namespace).Create(ctx, p, dryRun)
			return err
		}),
		admin("shape of a service", true, func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			_, err := client.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: shaped},
				Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{
					{Name: "a", Port: 80}, {Name: "b", Port: 81, TargetPort: intstr.FromString("web")}, {Name: "c", Port: 82, TargetPort: intstr.FromInt32(8082)},
				}},
			}, dryRun)
			return err
		}),
		admin("shape of a secret", true, func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			_, err := client.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: shaped}, StringData: map[string]string{"a": "plain"}, Data: map[string][]byte{"b": {0xff, 0}},
			}, dryRun)
			return err
		}),

		admin("custom resource", false, thing("4")),
		admin("custom resource, refused", true, thing("6")),
		admin("custom resource, another type", true, thing(`"many"`)),
		admin("custom resource, a fraction", true, thing("5.5")),
		admin("excluded by name", false, named("free")),
		admin("excluded by name, not a generated one", true, named("")),
		admin("not excluded", true, named("other")),
		admin("not excluded and good", false, named("good")),
		admin("excluded by kind", false, func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			_, err := client.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{"upstream": "excluded"}}}, dryRun)
			return err
		}),
		admin("another kind", true, func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			_, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{"upstream": "excluded"}}}, dryRun)
			return err
		}),
		admin("ephemeral container", false, debug("registry.example/debug:1")),
		admin("ephemeral container, refused", true, debug("other.example/debug:1")),

		admin("older version", false, older("scalers", 50)),
		admin("older version, refused", true, older("scalers", 49)),
		admin("newer version", false, newer("scalers", 50)),
		admin("newer version, refused", true, newer("scalers", 49)),
		admin("update in the newer version", false, replaced(70)),
		admin("update in the newer version, refused", true, replaced(30)),
		admin("exactly the older version, refused", true, older("scalers-exact", 49)),
		admin("exactly the older version, asked for in the newer", false, newer("scalers-exact", 49)),
	}
}
