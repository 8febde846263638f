package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// The two namespaces of the comparison. The policies' bindings select a namespace label, and each of the two sides is
// told of it for its own namespace only: the API server by the labels that the namespace has, Gatehouse by a document.
// So the documents are the same on both sides, and no side hides the other.
const (
	byAPIServer = "by-apiserver"
	byGatehouse = "by-gatehouse"
)

// verdict is what a client learns.
type verdict struct {
	refused bool
	code    int32
	reason  metav1.StatusReason
	message string
}

// verdictOf takes the first violation out of an error, which is the only one that the API server itself reports. It is
// an error if the wrong side has refused.
func verdictOf(namespace string, err error) (verdict, error) {
	if err == nil {
		return verdict{}, nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return verdict{}, err
	}
	s := status.Status()
	at := strings.Index(s.Message, "ValidatingAdmissionPolicy '")
	if at < 0 || strings.Contains(s.Message[:at], "admission webhook") != (namespace == byGatehouse) {
		return verdict{}, err
	}
	message, _, _ := strings.Cut(s.Message[at:], "\n2. ")
	return verdict{true, s.Code, s.Reason, message}, nil
}

// comparison is one request, made in both namespaces.
type comparison struct {
	name    string
	refused bool
	// prepare, if not nil, creates what the request is about.
	prepare func(ctx context.Context, client kubernetes.Interface, namespace string) error
	request func(ctx context.Context, client kubernetes.Interface, namespace string) error
}

// The same ValidatingAdmissionPolicy documents, enforced by the API server and by Gatehouse, give the same verdicts, and
// the same first message.
func TestUpstreamPolicies(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	client := w.Client()
	must(t, w.CreateNamespace(t.Context(), byAPIServer, map[string]string{"compared": "true", "team": "blue"}))
	must(t, w.CreateNamespace(t.Context(), byGatehouse, map[string]string{"team": "blue"}))
	for _, file := range []string{"params.yaml", "policies.yaml"} {
		documents, err := os.ReadFile("testdata/differential/" + file)
		must(t, err)
		must(t, w.apply(t.Context(), strings.ReplaceAll(string(documents), byGatehouse, byAPIServer)))
	}

	for _, refused := range []bool{true, false} {
		// What is admitted comes second, when all policies are known to be in force.
		t.Run(map[bool]string{true: "refused", false: "admitted"}[refused], func(t *testing.T) {
			for _, c := range comparisons() {
				if c.refused == refused {
					t.Run(c.name, func(t *testing.T) {
						t.Parallel()
						c.run(t, client)
					})
				}
			}
		})
	}
}

func (c comparison) run(t *testing.T, client kubernetes.Interface) {
	if c.prepare != nil {
		for _, namespace := range []string{byAPIServer, byGatehouse} {
			must(t, c.prepare(t.Context(), client, namespace))
		}
	}
	var native verdict
	// The API server takes policies up a moment after they were created.
	support.Eventually(t, "the API server's verdict", func() error {
		var err error
		native, err = verdictOf(byAPIServer, c.request(t.Context(), client, byAPIServer))
		if err == nil && native.refused != c.refused {
			err = fmt.Errorf("it is %+v, want refused %v", native, c.refused)
		}
		return err
	})
	ours, err := verdictOf(byGatehouse, c.request(t.Context(), client, byGatehouse))
	must(t, err)
	if ours != native {
		t.Errorf("Gatehouse:\n %+v\nthe API server:\n %+v", ours, native)
	}
}

func comparisons() []comparison {
	type call = func(ctx context.Context, client kubernetes.Interface, namespace string) error
	selected := func(policy string, more ...string) map[string]string {
		labels := map[string]string{"policy": policy}
		for _, label := range more {
			key, value, _ := strings.Cut(label, "=")
			labels[key] = value
		}
		return labels
	}
	settings := func(name string, labels map[string]string, options metav1.CreateOptions, data ...string) call {
		return func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, configMap(name, labels, data...), options)
			return err
		}
	}
	change := func(name string, labels map[string]string, data ...string) call {
		return func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			_, err := client.CoreV1().ConfigMaps(namespace).Update(ctx, configMap(name, labels, data...), metav1.UpdateOptions{DryRun: dryRun.DryRun})
			return err
		}
	}
	remove := func(name string) call {
		return func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			return client.CoreV1().ConfigMaps(namespace).Delete(ctx, name, metav1.DeleteOptions{DryRun: dryRun.DryRun})
		}
	}
	images := func(images ...string) call {
		return func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			p := pod("p", labelled("policy", "images"))
			p.Spec.Containers = nil
			for i, image := range images {
				container := corev1.Container{Name: fmt.Sprintf("c%d", i), Image: image}
				if i == 1 {
					p.Spec.InitContainers = append(p.Spec.InitContainers, container)
				} else {
					p.Spec.Containers = append(p.Spec.Containers, container)
				}
			}
			_, err := client.CoreV1().Pods(namespace).Create(ctx, p, dryRun)
			return err
		}
	}
	deployment := func(name string, labels map[string]string, replicas int32, options metav1.CreateOptions) call {
		return func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			app := map[string]string{"app": name}
			_, err := client.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
				Spec: appsv1.DeploymentSpec{
					Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: app},
					Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: pod("").Spec},
				},
			}, options)
			return err
		}
	}
	scale := func(name string, replicas int32) call {
		return func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			_, err := client.AppsV1().Deployments(namespace).UpdateScale(ctx, name, &autoscalingv1.Scale{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas},
			}, metav1.UpdateOptions{DryRun: dryRun.DryRun})
			return err
		}
	}
	scaler := func(target int32) call {
		return func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			_, err := client.AutoscalingV1().HorizontalPodAutoscalers(namespace).Create(ctx, &autoscalingv1.HorizontalPodAutoscaler{
				ObjectMeta: metav1.ObjectMeta{Name: "h", Labels: selected("scalers")},
				Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
					ScaleTargetRef: autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "d"},
					MaxReplicas:    3, TargetCPUUtilizationPercentage: &target,
				},
			}, dryRun)
			return err
		}
	}
	shell := func(container string) call {
		return func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			options := &corev1.PodExecOptions{Container: container, Command: []string{"sh", "-c", "id"}, Stdin: true}
			err := client.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name("p").SubResource("exec").
				VersionedParams(options, scheme.ParameterCodec).Do(ctx).Error()
			if apierrors.IsNotFound(err) {
				return nil // admitted, but there is no such pod
			}
			return err
		}
	}
	stored := metav1.CreateOptions{}

	return []comparison{
		{"replicas, few", false, nil, deployment("few", selected("replicas"), 5, dryRun)},
		{"replicas, many: the expression is the message", true, nil, deployment("many", selected("replicas"), 6, dryRun)},
		{"replicas, many without the label", false, nil, deployment("many", nil, 6, dryRun)},

		{"images, good", false, nil, images("registry.example/a:1", "registry.example/b:2")},
		{"images, bad: a message by expression", true, nil, images("registry.example/a:1", "registry.example/b:latest", "other.example/c:1")},

		{"settings, good", false, nil, settings("s", selected("settings"), dryRun, "owner=me", "memory=1Gi")},
		{"settings, no owner", true, nil, settings("s", selected("settings"), dryRun, "memory=1Gi")},
		{"settings, no data", true, nil, settings("s", selected("settings"), dryRun)},
		{"settings, too many", true, nil, settings("s", selected("settings"), dryRun, "owner=me", "a=1", "b=2")},
		{"settings, no quantity", true, nil, settings("s", selected("settings"), dryRun, "owner=me", "a=much")},
		{"settings, three violations", true, nil, settings("s", selected("settings"), dryRun, "x=much", "y=more", "z=most")},
		{"settings, free by a match condition", false, nil, settings("free-1", selected("settings"), dryRun, "a=much")},
		{"settings, generated name", true, nil, func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			c := configMap("", selected("settings"), "memory=1Gi")
			c.GenerateName = "generated-"
			_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, c, dryRun)
			return err
		}},
		{"settings, immutable: the message's expression fails", true, nil, func(ctx context.Context, client kubernetes.Interface, namespace string) error {
			c := configMap("s", selected("settings"), "owner=me")
			c.Immutable = new(true)
			_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, c, dryRun)
			return err
		}},

		{"param, within", false, nil, settings("l", selected("limits", "limits=found"), dryRun, "a=1", "b=2")},
		{"param, beyond", true, nil, settings("l", selected("limits", "limits=found"), dryRun, "a=1", "b=2", "c=3")},
		{"param, missing", true, nil, settings("l", selected("limits", "limits=missing"), dryRun, "a=1")},
		{"param, missing and allowed", false, nil, settings("l", selected("limits", "limits=missing-allowed"), dryRun, "a=1")},

		{"error, closed", true, nil, settings("e", selected("errors-closed"), dryRun, "other=x")},
		{"error, closed, no data", true, nil, settings("e", selected("errors-closed"), dryRun)},
		{"no error, closed", false, nil, settings("e", selected("errors-closed"), dryRun, "mode=safe")},
		{"violation, closed", true, nil, settings("e", selected("errors-closed"), dryRun, "mode=fast")},
		{"error, open", false, nil, settings("e", selected("errors-open"), dryRun, "other=x")},
		{"violation, open", true, nil, settings("e", selected("errors-open"), dryRun, "mode=fast")},

		{"update, same owner", false, settings("kept-1", selected("kept"), stored, "owner=a"), change("kept-1", selected("kept"), "owner=a", "more=b")},
		{"update, other owner", true, settings("kept-2", selected("kept"), stored, "owner=a"), change("kept-2", selected("kept"), "owner=b")},
		{"update, other owner and the label taken away", true, settings("kept-3", selected("kept"), stored, "owner=a"), change("kept-3", nil, "owner=b")},
		{"delete", false, settings("kept-4", selected("kept"), stored, "owner=a"), remove("kept-4")},
		{"delete what is to be kept", true, settings("kept-5", selected("kept"), stored, "owner=a", "keep=yes"), remove("kept-5")},

		{"scale, few", false, deployment("scaled", nil, 0, stored), scale("scaled", 3)},
		{"scale, another name", false, deployment("other", nil, 0, stored), scale("other", 4)},
		{"scale, many", true, deployment("scaled-too", nil, 0, stored), scale("scaled-too", 4)},

		{"another version", false, nil, scaler(50)},
		{"another version, refused", true, nil, scaler(49)},

		{"connection", false, nil, shell("app")},
		{"connection, refused", true, nil, shell("secret")},
	}
}
