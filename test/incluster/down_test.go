package incluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/kubelet"
)

// nobody is what the API server says when a webhook cannot be called, behind the name of the webhook.
const nobody = `no endpoints available for service "gatehouse"`

// Gatehouse is away altogether. What asks for it, and what policies decide about, is refused and says why; everything else
// in the cluster goes on, and Gatehouse comes back without help.
func TestAllDown(t *testing.T) {
	t.Parallel()
	s := newSite(t, cluster.Options{})
	s.installTwo(t)
	s.createWorkloads(t)

	for _, test := range []struct {
		name       string
		leave, ret func(t *testing.T)
	}{
		{"scaled to nothing", s.scaleToNothing, func(t *testing.T) { s.scale(t, 2) }},
		{"killed, and not started again", s.killAll, func(*testing.T) { s.kubelet.Release() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := s.before(t)
			test.leave(t)
			s.waitUntilUnreachable(t)
			for _, c := range refusals {
				t.Run(c.name, func(t *testing.T) {
					err := c.do(t.Context(), s)
					if err == nil || !strings.Contains(err.Error(), c.webhook) || !strings.Contains(err.Error(), nobody) {
						t.Errorf("got the error %v, want one that has %q and %q", err, c.webhook, nobody)
					}
				})
			}
			for _, c := range goesOn {
				t.Run(c.name, func(t *testing.T) { must(t, c.do(t.Context(), b)) })
			}
			test.ret(t)
			s.rolledOut(t)
			s.waitUntilAnswered(t)
			t.Run("what was applied meanwhile is in use", func(t *testing.T) { s.waitUntilActive(t, b.later) })
		})
	}

	t.Run("with validation that fails open", func(t *testing.T) {
		_, err := s.kubectl(t.Context(), "", "patch", "validatingwebhookconfiguration", "gatehouse", "--type=json",
			"--patch", `[{"op":"test","path":"/webhooks/0/name","value":"fail.validate.gatehouse.dev"},{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]`)
		must(t, err)
		s.scaleToNothing(t)
		s.waitUntilUnreachable(t)
		t.Run("a pod that asks is refused", func(t *testing.T) {
			err := s.create(t.Context(), shop, asking("asks"))
			if err == nil || !strings.Contains(err.Error(), "asked.mutate.gatehouse.dev") {
				t.Errorf("got the error %v, want a refusal", err)
			}
		})
		t.Run("a pod that does not ask is created", func(t *testing.T) { must(t, s.create(t.Context(), mall, plain("bare"))) })
		t.Run("the pods of a deployment are created", func(t *testing.T) {
			_, err := s.Client().AppsV1().Deployments(mall).Create(t.Context(), deployment("bare"), metav1.CreateOptions{})
			must(t, err)
			support.Eventually(t, "the pods of the deployment", func() error {
				pods, err := s.Client().CoreV1().Pods(mall).List(t.Context(), metav1.ListOptions{LabelSelector: "app=bare"})
				if err == nil && len(pods.Items) != 2 {
					err = fmt.Errorf("there are %d", len(pods.Items))
				}
				return err
			})
		})
	})

	t.Run("without the registrations", func(t *testing.T) {
		_, err := s.kubectl(t.Context(), "", "delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "gatehouse")
		must(t, err)
		support.Eventually(t, "a pod that asks is created as it is", func() error { return s.create(t.Context(), shop, asking("as-it-is")) })
		_, err = s.Client().AppsV1().Deployments(shop).Create(t.Context(), deployment("as-it-is"), metav1.CreateOptions{})
		must(t, err)

		s.scale(t, 2)
		s.installTwo(t)
		s.waitUntilAnswered(t)
	})

	renewed, missed := s.kubelet.Renewals()
	if renewed == 0 || missed > 0 {
		t.Errorf("the node renewed its Lease %d times, and could not %d times", renewed, missed)
	}
}

// refusals are what cannot be done while Gatehouse is away, and the webhook that keeps it from being done.
var refusals = []struct {
	name, webhook string
	do            func(context.Context, *site) error
}{
	{"a pod that asks is refused", "asked.mutate.gatehouse.dev", func(ctx context.Context, s *site) error {
		return s.create(ctx, shop, asking("asks"))
	}},
	{"a pod that does not ask is refused, because policies are about pods", "fail.validate.gatehouse.dev", func(ctx context.Context, s *site) error {
		return s.create(ctx, mall, plain("does-not-ask"))
	}},
	{"a deployment is refused", "fail.validate.gatehouse.dev", func(ctx context.Context, s *site) error {
		_, err := s.Client().AppsV1().Deployments(shop).Create(ctx, deployment("refused"), metav1.CreateOptions{})
		return err
	}},
}

// bystander is what is in the cluster besides Gatehouse and has nothing to do with it.
type bystander struct {
	*site
	// node speaks as the node does.
	node kubernetes.Interface
	// name is that of a namespace with a pod "waits", a pod "runs" that is the node's and a Deployment.
	name string
	// later is the name of a profile that is not there yet.
	later string
}

// before makes what is there when Gatehouse goes away.
func (s *site) before(t *testing.T) *bystander {
	t.Helper()
	b := &bystander{site: s, name: s.NewNamespace(t, nil)}
	b.later = "later-" + b.name
	access, err := s.ConfigFor("system:node:"+kubelet.NodeName, "system:nodes")
	must(t, err)
	b.node, err = kubernetes.NewForConfig(access)
	must(t, err)
	for _, name := range []string{"waits", "runs"} {
		must(t, s.create(t.Context(), b.name, plain(name)))
	}
	must(t, b.bind(t.Context(), "runs"))
	_, err = s.Client().AppsV1().Deployments(b.name).Create(t.Context(), deployment("there"), metav1.CreateOptions{})
	must(t, err)
	_, err = s.Client().BatchV1().Jobs(b.name).Create(t.Context(), job("there"), metav1.CreateOptions{})
	must(t, err)
	support.Eventually(t, "the pods of the deployment and the job", func() error {
		pods, err := s.Client().CoreV1().Pods(b.name).List(t.Context(), metav1.ListOptions{LabelSelector: "app=there"})
		if err == nil && len(pods.Items) != 3 {
			err = fmt.Errorf("there are %d", len(pods.Items))
		}
		return err
	})
	return b
}

// goesOn is what must be possible without Gatehouse, in this order.
var goesOn = []struct {
	name string
	do   func(context.Context, *bystander) error
}{
	{"the node renews its Lease", func(ctx context.Context, b *bystander) error {
		leases := b.node.CoordinationV1().Leases(corev1.NamespaceNodeLease)
		lease, err := leases.Get(ctx, kubelet.NodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		lease.Spec.RenewTime = new(metav1.NowMicro())
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			return nil // the kubelet was faster, so it could
		}
		return err
	}},
	{"the node tells its status", func(ctx context.Context, b *bystander) error {
		patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","lastHeartbeatTime":%q}]}}`,
			time.Now().UTC().Format(time.RFC3339))
		_, err := b.node.CoreV1().Nodes().Patch(ctx, kubelet.NodeName, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	}},
	{"another node joins", func(ctx context.Context, b *bystander) error {
		name := "node-" + b.name
		access, err := b.ConfigFor("system:node:"+name, "system:nodes")
		if err != nil {
			return err
		}
		client, err := kubernetes.NewForConfig(access)
		if err != nil {
			return err
		}
		_, err = client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}},
	{"a certificate is signed for a node", func(ctx context.Context, b *bystander) error { return b.sign(ctx) }},
	{"a pod is bound", func(ctx context.Context, b *bystander) error { return b.bind(ctx, "waits") }},
	{"the node tells the status of a pod", func(ctx context.Context, b *bystander) error {
		_, err := b.node.CoreV1().Pods(b.name).Patch(ctx, "runs", types.StrategicMergePatchType, []byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status")
		return err
	}},
	{"a pod is evicted", func(ctx context.Context, b *bystander) error {
		return b.Client().PolicyV1().Evictions(b.name).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: b.name, Name: "runs"}})
	}},
	{"an election", func(ctx context.Context, b *bystander) error {
		leases := b.Client().CoordinationV1().Leases(b.name)
		lease, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "leader"}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		lease.Spec.HolderIdentity = new("somebody")
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		return err
	}},
	{"an event", func(ctx context.Context, b *bystander) error {
		_, err := b.Client().CoreV1().Events(b.name).Create(ctx, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "event"},
			InvolvedObject: corev1.ObjectReference{Namespace: b.name, Kind: "Pod", Name: "waits"},
		}, metav1.CreateOptions{})
		return err
	}},
	{"a token, and its review", func(ctx context.Context, b *bystander) error {
		token, err := b.Client().CoreV1().ServiceAccounts(b.name).CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		review, err := b.Client().AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: token.Status.Token},
		}, metav1.CreateOptions{})
		if err == nil && !review.Status.Authenticated {
			err = errors.New("the token is not accepted")
		}
		return err
	}},
	{"an access review", func(ctx context.Context, b *bystander) error {
		_, err := b.Client().AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: "somebody", ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"}},
		}, metav1.CreateOptions{})
		return err
	}},
	{"a ConfigMap in kube-system", func(ctx context.Context, b *bystander) error {
		_, err := b.Client().CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: b.name}}, metav1.CreateOptions{})
		return err
	}},
	{"a deployment in kube-system, with its pods", func(ctx context.Context, b *bystander) error {
		_, err := b.Client().AppsV1().Deployments(metav1.NamespaceSystem).Create(ctx, deployment(b.name), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		return support.Poll(ctx, func() error {
			pods, err := b.Client().CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "app=" + b.name})
			if err == nil && len(pods.Items) != 2 {
				err = fmt.Errorf("there are %d pods", len(pods.Items))
			}
			return err
		})
	}},
	{"a pod of its own namespace", func(ctx context.Context, b *bystander) error {
		_, err := b.Client().CoreV1().Pods(system).Create(ctx, restricted(asking("probe-"+b.name)), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}},
	{"a custom resource is applied", func(ctx context.Context, b *bystander) error { return b.apply(ctx, profile(b.later)) }},
	{"a new namespace has what it needs", func(ctx context.Context, b *bystander) error { return b.CreateNamespace(ctx, b.name+"-new", nil) }},
	{"in an emergency, a pod that asks is created as it is", func(ctx context.Context, b *bystander) error {
		const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"emergency","annotations":{"sidecar.gatehouse.dev/inject":"true"}},` +
			`"spec":{"containers":[{"name":"app","image":"app"}]}}`
		_, err := b.kubectl(ctx, pod, "create", "--namespace", b.name, "--filename", "-",
			"--as=kubernetes-admin", "--as-group=system:masters", "--as-group=gatehouse.dev:break-glass")
		return err
	}},
	{"a pod is deleted", func(ctx context.Context, b *bystander) error {
		return b.Client().CoreV1().Pods(b.name).Delete(ctx, "emergency", metav1.DeleteOptions{})
	}},
	{"a deployment is deleted, its pods first", func(ctx context.Context, b *bystander) error {
		err := b.Client().AppsV1().Deployments(b.name).Delete(ctx, "there", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)})
		if err != nil {
			return err
		}
		return support.Poll(ctx, func() error {
			_, err := b.Client().AppsV1().Deployments(b.name).Get(ctx, "there", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(err, errors.New("it is there still"))
		})
	}},
	{"a namespace is deleted with all that is in it", func(ctx context.Context, b *bystander) error {
		err := b.Client().CoreV1().Namespaces().Delete(ctx, b.name, metav1.DeleteOptions{})
		if err != nil {
			return err
		}
		// Its pods that were bound wait for the node, which is not there for them.
		for _, name := range []string{"waits", "runs"} {
			err := b.node.CoreV1().Pods(b.name).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		return support.Poll(ctx, func() error {
			namespace, err := b.Client().CoreV1().Namespaces().Get(ctx, b.name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(err, fmt.Errorf("it is there still, with the conditions %v", namespace.Status.Conditions))
		})
	}},
}

// bind gives a pod to the node, as the scheduler does.
func (b *bystander) bind(ctx context.Context, pod string) error {
	return b.Client().CoreV1().Pods(b.name).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod}, Target: corev1.ObjectReference{Kind: "Node", Name: kubelet.NodeName},
	}, metav1.CreateOptions{})
}

// sign has a client certificate of the node asked for, approved and signed.
func (b *bystander) sign(ctx context.Context) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + kubelet.NodeName, Organization: []string{"system:nodes"}},
	}, key)
	if err != nil {
		return err
	}
	requests := b.node.CertificatesV1().CertificateSigningRequests()
	request, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: b.name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test",
	})
	_, err = b.Client().CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, b.name, request, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsConflict(err) { // kube-controller-manager approves a node's own
		return err
	}
	return support.Poll(ctx, func() error {
		request, err := b.Client().CertificatesV1().CertificateSigningRequests().Get(ctx, b.name, metav1.GetOptions{})
		if err == nil && len(request.Status.Certificate) == 0 {
			err = errors.New("it is not signed")
		}
		return err
	})
}

// waitUntilUnreachable waits until the API server has nobody to ask.
func (s *site) waitUntilUnreachable(t *testing.T) {
	t.Helper()
	support.Eventually(t, "nobody answers", func() error {
		err := s.create(t.Context(), shop, asking("asks"))
		switch {
		case err == nil:
			return errors.Join(errors.New("a pod that asks was created"), s.Client().CoreV1().Pods(shop).Delete(t.Context(), "asks", metav1.DeleteOptions{}))
		case !strings.Contains(err.Error(), nobody):
			return fmt.Errorf("a pod that asks: %w", err)
		default:
			return nil
		}
	})
}

// killAll kills every replica, and none is started again.
func (s *site) killAll(t *testing.T) {
	t.Helper()
	s.kubelet.Hold()
	for _, pod := range s.kubelet.Pods() {
		must(t, pod.Process().Kill())
	}
}

// waitUntilActive waits until pods get a profile when they ask for it.
func (s *site) waitUntilActive(t *testing.T, profile string) {
	t.Helper()
	pod := asking("uses")
	pod.Annotations["sidecar.gatehouse.dev/inject"] = profile
	support.Eventually(t, "the profile is in use", func() error {
		made, err := s.Client().CoreV1().Pods(shop).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if len(made.Spec.InitContainers) != 1 || made.Spec.InitContainers[0].Name != profile {
			return errors.New("the pod is without its sidecar")
		}
		return nil
	})
}

// scale says how many replicas there are to be.
func (s *site) scale(t *testing.T, replicas int) {
	t.Helper()
	_, err := s.kubectl(t.Context(), "", "scale", "deployment/gatehouse", "--namespace", system, fmt.Sprintf("--replicas=%d", replicas))
	must(t, err)
}

// scaleToNothing ends every replica. Before Kubernetes 1.37 they answer over open connections until they have ended.
func (s *site) scaleToNothing(t *testing.T) {
	t.Helper()
	s.scale(t, 0)
	if s.Minor(t) < roundTripBalancing {
		s.waitForReplicas(t, 0)
	}
}

// create creates a pod.
func (s *site) create(ctx context.Context, namespace string, pod *corev1.Pod) error {
	_, err := s.Client().CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// plain is a pod that asks for nothing.
func plain(name string) *corev1.Pod {
	pod := asking(name)
	pod.Annotations = nil
	return pod
}

// restricted makes a pod one that the strictest standard of Pod Security allows.
func restricted(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	return pod
}

// deployment is one of two pods that ask for nothing. They have a label of its name.
func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: plain("").Spec},
		},
	}
}

// job is one of one pod that asks for nothing, with a label of its name. Its pod has a finalizer until it has been counted.
func job(name string) *batchv1.Job {
	spec := plain("").Spec
	spec.RestartPolicy = corev1.RestartPolicyNever
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}}, Spec: spec}},
	}
}
