package install

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
)

const (
	// probeTimeout is how long probe tries by default.
	probeTimeout = 30 * time.Second
	// probeInterval is the pause between two attempts.
	probeInterval = time.Second
	// defaultWebhookTimeout is that of a webhook without timeoutSeconds.
	defaultWebhookTimeout = 10 * time.Second
)

// NewProbeCommand returns the command "gatehouse probe".
func NewProbeCommand(s cli.Streams) *cobra.Command {
	var f probeFlags
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Check that the webhooks answer, as the API server calls them",
		Long: `Probe sends a review to each webhook in the webhook configurations of an install, as the
API server does: to the cluster IP of the Service, with TLS, for the name of the
Service, and it trusts only the caBundle of that webhook. The review is a dry run that
creates a pod in --namespace. Nothing is created. A denial by a policy is an answer.

Run it where the addresses of Services can be reached: in a pod or on a node. The Helm
chart runs it for helm test. It needs the rights to get both webhook configurations and
the Service.

It tries again until every webhook answers, for --timeout.

Exit codes: 0 every webhook answers; 1 a webhook does not answer, or with a certificate
that its caBundle does not verify; 2 the webhook configurations or the Service cannot be
read.`,
		Example: `  # in a pod
  gatehouse probe --in-cluster

  # on a node
  gatehouse probe --kubeconfig /etc/kubernetes/admin.conf`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			config, err := f.Connect("--in-cluster in a pod")
			if err != nil {
				return err
			}
			config.QPS = -1 // one request for each object
			client, err := certs.NewClient(config)
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), client, s)
		},
	}
	f.add(cmd, "name of the webhook configurations", "namespace of the pod in the review", probeTimeout, "how long to try until every webhook answers")
	return cmd
}

// probeFlags are the flags of probe.
type probeFlags struct{ installFlags }

// probeReport is the JSON output of probe.
type probeReport struct {
	Name     string         `json:"name"`
	Webhooks []*probeResult `json:"webhooks"`
}

// probeResult is the answer of one webhook.
type probeResult struct {
	// Configuration is KIND/NAME.
	Configuration string `json:"configuration"`
	Webhook       string `json:"webhook"`
	// Answered is true if there is a response of the webhook.
	Answered bool `json:"answered"`
	// Allowed is what it decided.
	Allowed bool `json:"allowed"`
	// Message is why it denied, or why there is no answer.
	Message string `json:"message,omitempty"`
}

func (r *probeResult) String() string {
	decision := "allowed"
	if !r.Allowed {
		decision = "denied: " + r.Message
	}
	return fmt.Sprintf("%s: %s answers: %s", r.Configuration, r.Webhook, decision)
}

// run tries until every webhook answers or the time is over, and reports the last attempt.
func (f *probeFlags) run(ctx context.Context, client certs.Client, s cli.Streams) error {
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("no answer within --timeout %s", cli.FormatDuration(f.timeout)))
	defer cancel()
	var results []*probeResult
	var err error
	for {
		now, failed := f.attempt(ctx, client)
		// What the end of the time interrupts says less than the attempt before.
		if err == nil || ctx.Err() == nil {
			results, err = now, failed
		}
		if err == nil || !sleep.Context(ctx, probeInterval) {
			break
		}
	}
	if f.output == "json" && results != nil {
		return errors.Join(err, cli.WriteJSONLine(s.Out, probeReport{Name: f.name, Webhooks: results}))
	}
	for _, r := range results {
		if !r.Answered {
			continue
		}
		if _, failed := fmt.Fprintln(s.Out, r); failed != nil {
			return failed
		}
	}
	return err
}

// attempt calls every webhook once. The results are nil if the webhooks cannot be read.
func (f *probeFlags) attempt(ctx context.Context, client certs.Client) ([]*probeResult, error) {
	calls, addresses, err := f.calls(ctx, client)
	if err != nil {
		return nil, err
	}
	results := make([]*probeResult, len(calls))
	var problems []error
	for i := range calls {
		results[i] = &calls[i].probeResult
		calls[i].send(ctx, f.namespace, addresses)
		if !results[i].Answered {
			problems = append(problems, fmt.Errorf("%s: %s does not answer: %s", results[i].Configuration, results[i].Webhook, results[i].Message))
		}
	}
	if len(problems) > 0 {
		return results, &cli.ExitError{Code: cli.ExitNo, Err: errors.Join(problems...)}
	}
	return results, nil
}

// probeCall is a call of a webhook, as the API server makes it.
type probeCall struct {
	probeResult

	webhook webhook.WebhookAccessor
	config  *admissionregistrationv1.WebhookClientConfig
}

// calls returns the calls of all webhooks, in the order of the configurations, and the addresses of their Services.
func (f *probeFlags) calls(ctx context.Context, client certs.Client) ([]probeCall, clusterIPs, error) {
	registrations := client.AdmissionregistrationV1()
	mutating, mutatingErr := registrations.MutatingWebhookConfigurations().Get(ctx, f.name, metav1.GetOptions{})
	validating, validatingErr := registrations.ValidatingWebhookConfigurations().Get(ctx, f.name, metav1.GetOptions{})
	if err := cmp.Or(apierr.Unreached(mutatingErr), apierr.Unreached(validatingErr)); err != nil {
		return nil, nil, err
	}
	if err := errors.Join(mutatingErr, validatingErr); err != nil {
		return nil, nil, fmt.Errorf("cannot read the webhook configurations: %w", err)
	}
	var calls []probeCall
	for i := range mutating.Webhooks {
		w := webhook.NewMutatingWebhookAccessor("", "MutatingWebhookConfiguration/"+f.name, &mutating.Webhooks[i])
		calls = append(calls, probeCall{webhook: w, config: &mutating.Webhooks[i].ClientConfig})
	}
	for i := range validating.Webhooks {
		w := webhook.NewValidatingWebhookAccessor("", "ValidatingWebhookConfiguration/"+f.name, &validating.Webhooks[i])
		calls = append(calls, probeCall{webhook: w, config: &validating.Webhooks[i].ClientConfig})
	}
	if len(calls) == 0 {
		return nil, nil, fmt.Errorf("the webhook configurations %q have no webhooks", f.name)
	}
	addresses := clusterIPs{}
	for i := range calls {
		c := &calls[i]
		c.Configuration, c.Webhook = c.webhook.GetConfigurationName(), c.webhook.GetName()
		if reference := c.config.Service; reference != nil {
			service, err := client.CoreV1().Services(reference.Namespace).Get(ctx, reference.Name, metav1.GetOptions{})
			if err != nil {
				return nil, nil, fmt.Errorf("cannot read the Service %s/%s: %w", reference.Namespace, reference.Name, err)
			}
			addresses[types.NamespacedName{Namespace: reference.Namespace, Name: reference.Name}] = service.Spec.ClusterIP
		}
	}
	return calls, addresses, nil
}

// clusterIPs are the addresses of Services. It implements webhookutil.ServiceResolver.
type clusterIPs map[types.NamespacedName]string

// ResolveEndpoint returns where a Service is called.
func (a clusterIPs) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(a[types.NamespacedName{Namespace: namespace, Name: name}], strconv.Itoa(int(port)))}, nil
}

// send calls the webhook and records its answer.
func (c *probeCall) send(ctx context.Context, namespace string, addresses clusterIPs) {
	response, err := c.review(ctx, namespace, addresses)
	if err != nil {
		c.Message = cli.OneLine(err.Error())
		return
	}
	c.Answered, c.Allowed = true, response.Allowed
	if response.Result != nil {
		c.Message = cli.OneLine(response.Result.Message)
	}
}

// review sends a review, with the client of the API server, and returns the response.
func (c *probeCall) review(ctx context.Context, namespace string, addresses clusterIPs) (*admissionv1.AdmissionResponse, error) {
	if c.config.Service != nil && len(c.config.CABundle) == 0 {
		return nil, errors.New("caBundle is empty, so the API server does not trust any certificate (hint: a replica that runs, cert-manager, or the issuer of the certificate writes it; see 'gatehouse certs status')")
	}
	manager, err := webhookutil.NewClientManager([]schema.GroupVersion{admissionv1.SchemeGroupVersion}, admissionv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	noCertificates, err := webhookutil.NewDefaultAuthenticationInfoResolver("")
	if err != nil {
		return nil, err
	}
	manager.SetAuthenticationInfoResolver(noCertificates)
	manager.SetServiceResolver(addresses)
	client, err := c.webhook.GetRESTClient(&manager)
	if err != nil {
		return nil, err
	}
	timeout := defaultWebhookTimeout
	if seconds := c.webhook.GetTimeoutSeconds(); seconds != nil {
		timeout = time.Duration(*seconds) * time.Second
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s, the timeout of the webhook", cli.FormatDuration(timeout)))
	defer cancel()
	sent := probeReview(namespace)
	var got admissionv1.AdmissionReview
	err = client.Post().MaxRetries(0).Body(sent).Do(ctx).Into(&got)
	certificate, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case untrusted:
		return nil, fmt.Errorf("its caBundle does not verify the certificate: %w (hint: gatehouse certs status)", certificate.Err)
	case err != nil:
		return nil, err
	case got.Response == nil:
		return nil, errors.New("the answer is an AdmissionReview without a response")
	case got.Response.UID != sent.Request.UID:
		return nil, fmt.Errorf("the response is for the request %.100q, not for %q", got.Response.UID, sent.Request.UID)
	}
	return got.Response, nil
}

// probeReview returns a dry run that creates a pod.
func probeReview(namespace string) *admissionv1.AdmissionReview {
	const name = "gatehouse-probe"
	// The namespace is a DNS label, as check found.
	pod := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%[1]q,"namespace":%[2]q},"spec":{"containers":[{"name":%[1]q,"image":%[1]q}]}}`, name, namespace)
	kind := metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}
	resource := metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	return &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: uuid.NewUUID(), Kind: kind, Resource: resource, RequestKind: &kind, RequestResource: &resource,
			Name: name, Namespace: namespace, Operation: admissionv1.Create, UserInfo: authenticationv1.UserInfo{Username: name},
			Object: runtime.RawExtension{Raw: pod}, DryRun: new(true),
			Options: runtime.RawExtension{Raw: []byte(`{"apiVersion":"meta.k8s.io/v1","kind":"CreateOptions","dryRun":["All"]}`)},
		},
	}
}
