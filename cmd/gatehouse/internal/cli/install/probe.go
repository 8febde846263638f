package install

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
)

const (
	// probeTimeout is how long probe tries by default.
	probeTimeout = 30 * time.Second
	// probeInterval is the pause between two attempts.
	probeInterval = time.Second
	// defaultWebhookTimeout is that of a webhook without timeoutSeconds.
	defaultWebhookTimeout = 10 * time.Second
	// maxAnswer bounds an answer that is read, and maxExcerpt what is shown of one that is no review.
	maxAnswer, maxExcerpt = 16 << 20, 200
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
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return fmt.Errorf("no client for the API server: %w", err)
			}
			return f.run(cmd.Context(), client, s)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", install.DefaultRegistration, "name of the webhook configurations")
	flags.StringVarP(&f.namespace, "namespace", "n", install.DefaultNamespace, "namespace of the pod in the review")
	flags.DurationVar(&f.timeout, "timeout", probeTimeout, "how long to try until every webhook answers")
	f.Add(cmd)
	cli.AddOutputFlag(cmd, &f.output, "text", "json")
	for _, name := range []string{"name", "namespace", "timeout"} {
		// The flags exist.
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	return cmd
}

// probeFlags are the flags of probe.
type probeFlags struct {
	cli.ClusterFlags
	name, namespace string
	timeout         time.Duration
	output          string
}

// check returns all errors of the flags.
func (f *probeFlags) check() error {
	var problems []error
	if f.output != "text" && f.output != "json" {
		problems = append(problems, cli.OutputError(f.output, "text", "json"))
	}
	if err := f.Check(); err != nil {
		problems = append(problems, err)
	}
	if wrong := validation.IsDNS1123Subdomain(f.name); len(wrong) > 0 {
		problems = append(problems, fmt.Errorf("--name %.100q: must be the name of an object: %s (hint: gatehouse)", f.name, wrong[0]))
	}
	if wrong := validation.IsDNS1123Label(f.namespace); len(wrong) > 0 {
		problems = append(problems, fmt.Errorf("--namespace %.100q: must be the name of a namespace: %s (hint: gatehouse-system)", f.namespace, wrong[0]))
	}
	if f.timeout <= 0 {
		problems = append(problems, fmt.Errorf("--timeout %s: must be more than 0s", cli.FormatDuration(f.timeout)))
	}
	return errors.Join(problems...)
}

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
func (f *probeFlags) run(ctx context.Context, client kubernetes.Interface, s cli.Streams) error {
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
func (f *probeFlags) attempt(ctx context.Context, client kubernetes.Interface) ([]*probeResult, error) {
	calls, err := f.calls(ctx, client)
	if err != nil {
		return nil, err
	}
	results := make([]*probeResult, len(calls))
	var problems []error
	for i := range calls {
		results[i] = &calls[i].probeResult
		calls[i].send(ctx, f.namespace)
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

	url *url.URL
	// address is where to connect to, HOST:PORT; that of the URL if empty.
	address  string
	caBundle []byte
	timeout  time.Duration
}

// calls returns the calls of all webhooks, in the order of the configurations.
func (f *probeFlags) calls(ctx context.Context, client kubernetes.Interface) ([]probeCall, error) {
	registrations := client.AdmissionregistrationV1()
	mutating, mutatingErr := registrations.MutatingWebhookConfigurations().Get(ctx, f.name, metav1.GetOptions{})
	validating, validatingErr := registrations.ValidatingWebhookConfigurations().Get(ctx, f.name, metav1.GetOptions{})
	if err := errors.Join(mutatingErr, validatingErr); err != nil {
		return nil, fmt.Errorf("cannot read the webhook configurations: %w", err)
	}
	var calls []probeCall
	add := func(kind, webhook string, config *admissionregistrationv1.WebhookClientConfig, seconds *int32) error {
		call := probeCall{
			probeResult: probeResult{Configuration: kind + "/" + f.name, Webhook: webhook},
			caBundle:    config.CABundle, timeout: defaultWebhookTimeout,
		}
		if seconds != nil {
			call.timeout = time.Duration(*seconds) * time.Second
		}
		calls = append(calls, call)
		return calls[len(calls)-1].locate(ctx, client, config)
	}
	for i := range mutating.Webhooks {
		w := &mutating.Webhooks[i]
		if err := add("MutatingWebhookConfiguration", w.Name, &w.ClientConfig, w.TimeoutSeconds); err != nil {
			return nil, err
		}
	}
	for i := range validating.Webhooks {
		w := &validating.Webhooks[i]
		if err := add("ValidatingWebhookConfiguration", w.Name, &w.ClientConfig, w.TimeoutSeconds); err != nil {
			return nil, err
		}
	}
	if len(calls) == 0 {
		return nil, fmt.Errorf("the webhook configurations %q have no webhooks", f.name)
	}
	return calls, nil
}

// locate finds where the API server calls a webhook: a URL, or the cluster IP of a Service, whose name the certificate has.
func (c *probeCall) locate(ctx context.Context, client kubernetes.Interface, config *admissionregistrationv1.WebhookClientConfig) error {
	if config.URL != nil {
		var err error
		if c.url, err = url.Parse(*config.URL); err != nil {
			return fmt.Errorf("%s: %s: %w", c.Configuration, c.Webhook, err)
		}
		return nil
	}
	reference := config.Service
	if reference == nil {
		return fmt.Errorf("%s: %s has neither a URL nor a Service", c.Configuration, c.Webhook)
	}
	service, err := client.CoreV1().Services(reference.Namespace).Get(ctx, reference.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("cannot read the Service %s/%s: %w", reference.Namespace, reference.Name, err)
	}
	const usualPort = 443
	port, path := strconv.Itoa(usualPort), ""
	if reference.Port != nil {
		port = strconv.Itoa(int(*reference.Port))
	}
	if reference.Path != nil {
		path = *reference.Path
	}
	c.url = &url.URL{Scheme: "https", Host: net.JoinHostPort(reference.Name+"."+reference.Namespace+".svc", port), Path: path}
	c.address = net.JoinHostPort(service.Spec.ClusterIP, port)
	return nil
}

// send calls the webhook and records its answer.
func (c *probeCall) send(ctx context.Context, namespace string) {
	response, err := c.review(ctx, namespace)
	if err != nil {
		c.Message = cli.OneLine(err.Error())
		return
	}
	c.Answered, c.Allowed = true, response.Allowed
	if response.Result != nil {
		c.Message = cli.OneLine(response.Result.Message)
	}
}

// review sends a review and returns the response.
func (c *probeCall) review(ctx context.Context, namespace string) (*admissionv1.AdmissionResponse, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	sent := probeReview(namespace)
	body, err := json.Marshal(sent)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no answer within %s, the timeout of the webhook", cli.FormatDuration(c.timeout)))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(request)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	defer answer.Body.Close() //nolint:errcheck // it is only read
	content, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: HTTP status %d: %.*s", c.place(), answer.StatusCode, maxExcerpt, content)
	}
	var got admissionv1.AdmissionReview
	if err := json.Unmarshal(content, &got); err != nil || got.Response == nil {
		return nil, fmt.Errorf("%s: the answer is no AdmissionReview with a response: %.*s", c.place(), maxExcerpt, content)
	}
	if got.Response.UID != sent.Request.UID {
		return nil, fmt.Errorf("%s: the response is for the request %.100q, not for %q", c.place(), got.Response.UID, sent.Request.UID)
	}
	return got.Response, nil
}

// client returns a client that trusts the caBundle alone, as the API server does. Without one, a URL is verified with the CAs of the
// system, and a Service cannot be verified.
func (c *probeCall) client() (*http.Client, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case len(c.caBundle) > 0:
		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(c.caBundle) {
			return nil, errors.New("caBundle has no certificate")
		}
	case c.address != "":
		return nil, errors.New("caBundle is empty, so the API server does not trust any certificate (hint: a replica that runs, cert-manager, or the issuer of the certificate writes it; see 'gatehouse certs status')")
	}
	transport := &http.Transport{TLSClientConfig: settings, ForceAttemptHTTP2: true}
	if c.address != "" {
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, c.address)
		}
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// place is where the webhook is called, for people.
func (c *probeCall) place() string {
	if c.address == "" {
		return c.url.String()
	}
	return fmt.Sprintf("%s at %s", c.url, c.address)
}

// explain returns why a call failed.
func (c *probeCall) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", c.place(), context.Cause(ctx))
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if certificate, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("%s: its caBundle does not verify the certificate: %w (hint: gatehouse certs status)", c.place(), certificate.Err)
	}
	return fmt.Errorf("%s: %w", c.place(), err)
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
