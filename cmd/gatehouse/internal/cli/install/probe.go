package install

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install/registration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install/webhookcall"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/status"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/pemcert"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
	"github.com/gatehouse-dev/gatehouse/webhooks"
)

// probeInterval is the pause between two attempts.
const probeInterval = time.Second

// NewProbeCommand returns the command "gatehouse probe".
func NewProbeCommand(s cli.Streams) *cobra.Command {
	var f probeFlags
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Check that every webhook answers the API server",
		Long: `Probe calls every webhook of an install as the API server does, and tells you which
one does not answer and why. It sends the creation of a pod as a dry run, over TLS,
and trusts only the caBundle of the webhook. A denial by a policy is an answer. Run
probe where the addresses of Services can be reached, in a pod or on a node; helm
test runs it, too.

Probe also warns about problems that replicas report, such as a rejected
configuration, and if Gatehouse asks callers for no client certificate. With --url
it calls a server outside of a cluster. With --authorization it checks instead that
the API server enforces the scopes of tokens, by SubjectAccessReviews, which you need
the right to create: with several API servers, run it for each.

With --context or --kubeconfig, probe also checks that the API server checks who grants:
it sends the creation of a Grant in the name of another user, as a dry run, which must
be refused. You need the right to create grants.gatehouse.dev. With --grants it checks
nothing else.

Exit codes: 0 every webhook answers; 1 a webhook does not answer, its certificate is
not trusted, scopes are not enforced, or the API server does not check who grants; 2 wrong usage, the webhook configurations or
the Service cannot be read, or the API server cannot be asked.`,
		Example: `  # in a pod
  gatehouse probe --in-cluster

  # a server without a cluster
  gatehouse probe --url https://127.0.0.1:9443 --ca-file ./gatehouse-certs/ca.crt

  # does the API server enforce the scopes of tokens?
  gatehouse probe --authorization --context prod

  # does the API server check who grants?
  gatehouse probe --grants --context prod`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(f.check(), f.checkURL()); err != nil {
				return err
			}
			if f.url != "" {
				return f.run(cmd.Context(), nil, s)
			}
			config, err := f.Connect("--in-cluster in a pod, or --url for a server without a cluster")
			if err != nil {
				return err
			}
			config.QPS = -1 // one request for each object
			if f.authorization {
				return f.runScopes(cmd.Context(), config, s)
			}
			grants, err := grantsClient(config)
			if err != nil {
				return err
			}
			if f.grants {
				return f.runGrants(cmd.Context(), grants, config.Host, s)
			}
			client, err := certs.NewClient(config)
			if err != nil {
				return err
			}
			err = f.run(cmd.Context(), client, s)
			if !f.InCluster { // the account of a pod needs no right to create Grants for this
				err = errors.Join(err, f.warnGrants(cmd.Context(), grants, config.Host, s))
			}
			return err
		},
	}
	f.add(cmd, "name of the webhook configurations", "namespace of the pod in the review", 30*time.Second, "maximum time to try until every webhook answers")
	cmd.Flags().BoolVar(&f.authorization, "authorization", false, "check only that the API server enforces the scopes of tokens")
	cmd.Flags().BoolVar(&f.grants, "grants", false, "check only that the API server checks who grants")
	cmd.Flags().StringVar(&f.url, "url", "", "server to call in place of the webhooks of a cluster, https://HOST[:PORT]")
	cmd.Flags().StringVar(&f.caFile, "ca-file", "", "file with the CAs of the certificate of --url, in PEM (default the system's)")
	return cmd
}

// installFlags are the flags of commands about an install in a cluster.
type installFlags struct {
	cli.ClusterFlags
	name, namespace string
	timeout         time.Duration
}

// add adds the flags, with their usages.
func (f *installFlags) add(cmd *cobra.Command, name, namespace string, timeout time.Duration, timeoutUsage string) {
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", install.DefaultRegistration, name)
	flags.StringVarP(&f.namespace, "namespace", "n", install.DefaultNamespace, namespace)
	flags.DurationVar(&f.timeout, "timeout", timeout, timeoutUsage)
	f.Add(cmd)
}

// check returns all errors of the flags.
func (f *installFlags) check() error {
	problems := cli.Problems{f.Check()}
	problems.Add(len(validation.IsDNS1123Subdomain(f.name)) > 0, "--name %.100q: must be the name of an object: lower-case letters, digits, dashes and dots (hint: gatehouse)", f.name)
	problems.Add(len(validation.IsDNS1123Label(f.namespace)) > 0,
		"--namespace %.100q: must be the name of a namespace: lower-case letters, digits and dashes (hint: gatehouse-system)", f.namespace)
	problems.Add(f.timeout <= 0, "--timeout %s: must be more than 0s", cli.FormatDuration(f.timeout))
	return problems.Err()
}

// probeFlags are the flags of probe.
type probeFlags struct {
	installFlags

	// authorization asks an API server whether it enforces scopes, and grants whether it checks who grants.
	authorization, grants bool
	// url is the address of a server without a cluster, and caFile has the CAs that verify it.
	url, caFile string
	target      *url.URL
	caBundle    []byte
}

// checkURL returns what is wrong with --url and --ca-file, and reads the file.
func (f *probeFlags) checkURL() error {
	if f.authorization && f.grants {
		return errors.New("--authorization and --grants check one thing alone: give one of them")
	}
	if f.url == "" {
		if f.caFile != "" {
			return errors.New("--ca-file is for --url: the webhook configurations of a cluster have a caBundle")
		}
		return nil
	}
	if f.authorization || f.grants {
		return errors.New("--authorization and --grants ask an API server, and --url a server without one")
	}
	if f.Given() {
		return errors.New("--url excludes --in-cluster, --kubeconfig and --context: it asks no API server")
	}
	server, err := registration.ParseURL(f.url)
	if err != nil {
		return fmt.Errorf("--url: %w", err)
	}
	if f.target, err = url.Parse(server.URL); err != nil {
		return err
	}
	if f.caFile != "" {
		if f.caBundle, err = cli.ReadFile(f.caFile, 1); err == nil {
			_, err = pemcert.Parse(f.caBundle)
		}
		if err != nil {
			return fmt.Errorf("--ca-file %s: %w", f.caFile, err)
		}
	}
	return nil
}

// noClientCertificate is the warning about servers without --client-ca.
const noClientCertificate = "Gatehouse asks callers for no client certificate, so API servers share its memory and connections with strangers (hint: set --client-ca, in the chart authentication.clientCASecret, and give API servers a certificate, see docs/tasks/require-client-certificates.md)"

// run tries until every webhook answers or the time is over, and prints the last attempt.
func (f *probeFlags) run(ctx context.Context, client certs.Client, s cli.Streams) error {
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("no answer within --timeout %s", cli.FormatDuration(f.timeout)))
	defer cancel()
	var answers []string
	var warned bool
	var err error
	for {
		now, warns, failed := f.attempt(ctx, client)
		// What the end of the time interrupts says less than the attempt before.
		if err == nil || ctx.Err() == nil {
			answers, warned, err = now, warns, failed
		}
		if err == nil || !sleep.Context(ctx, probeInterval) {
			break
		}
	}
	for _, answer := range answers {
		if _, failed := fmt.Fprintln(s.Out, answer); failed != nil {
			return failed
		}
	}
	for _, problem := range f.problems(ctx, client) {
		if _, failed := fmt.Fprintln(s.Err, "warning:", cli.Inert(problem)); failed != nil {
			return failed
		}
	}
	if warned {
		if _, failed := fmt.Fprintln(s.Err, "warning:", noClientCertificate); failed != nil {
			return failed
		}
	}
	return err
}

// problemsTimeout bounds how long the reports of the replicas are waited for.
const problemsTimeout = 5 * time.Second

// problems returns what the replicas report of themselves in their Leases, which exist with custom resources.
func (f *probeFlags) problems(ctx context.Context, client certs.Client) []string {
	if client == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), problemsTimeout)
	defer cancel()
	problems, err := status.ReplicaProblems(ctx, client.CoordinationV1(), f.namespace)
	switch {
	case err == nil || apierr.Classify(err) == apierr.NotFound:
		return problems
	case apierr.LacksRight(err, "list"):
		return []string{fmt.Sprintf("what replicas report is not shown: %v (hint: allow list of leases in the namespace %q)", err, f.namespace)}
	default:
		return []string{fmt.Sprintf("what replicas report is not shown: %v", err)}
	}
}

// attempt calls every webhook once. It returns the answers, whether to warn of a server that asks for no client certificate, and an
// error of those that do not answer.
func (f *probeFlags) attempt(ctx context.Context, client certs.Client) (answers []string, warns bool, err error) {
	calls, err := f.calls(ctx, client)
	if err != nil {
		return nil, false, err
	}
	var problems []error
	for i := range calls {
		c := &calls[i]
		response, err := c.Send(ctx, probeReview(f.namespace), func(timeout time.Duration) error {
			return fmt.Errorf("no answer within %s, the timeout of the webhook", cli.FormatDuration(timeout))
		})
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %s does not answer: %s", c.Configuration, c.Webhook, cli.Inert(err.Error())))
			continue
		}
		decision := "allowed"
		if !response.Allowed {
			decision = "denied"
			if response.Result != nil {
				decision += ": " + cli.Inert(response.Result.Message)
			}
		}
		answers = append(answers, fmt.Sprintf("%s: %s answers: %s", c.Configuration, c.Webhook, decision))
		warns = warns || c.Handshake(ctx) == nil && !c.AsksForCertificate()
	}
	if len(problems) > 0 {
		return answers, warns, &cli.ExitError{Code: cli.ExitNo, Err: errors.Join(problems...)}
	}
	return answers, warns, nil
}

// calls returns the calls of all webhooks, in the order of the configurations, with the addresses of their Services.
func (f *probeFlags) calls(ctx context.Context, client certs.Client) ([]webhookcall.Call, error) {
	if f.target != nil {
		var calls []webhookcall.Call
		for _, e := range webhooks.Endpoints() {
			if e.Admission != nil {
				calls = append(calls, webhookcall.At(f.target.JoinPath(e.Path), e.Path, f.caBundle))
			}
		}
		return calls, nil
	}
	calls, err := webhookcall.Read(ctx, client, f.name)
	if unreached := apierr.Unreached(err); unreached != nil {
		return nil, unreached
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the webhook configurations: %w", err)
	}
	if len(calls) == 0 {
		return nil, fmt.Errorf("the webhook configurations %q have no webhooks", f.name)
	}
	for i := range calls {
		if err := calls[i].Locate(ctx, client); err != nil {
			return nil, err
		}
	}
	return calls, nil
}

// probeName is the name of the pod and of the user of a review.
const probeName = "gatehouse-probe"

// probeReview returns a dry run of the creation of a pod, which every webhook answers: what a webhook is registered for is up to the API
// server.
func probeReview(namespace string) *admissionv1.AdmissionReview {
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: probeName, Namespace: namespace},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: probeName, Image: probeName}}},
	}
	kind, resource := metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	return &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: uuid.NewUUID(), Kind: kind, Resource: resource, RequestKind: &kind, RequestResource: &resource,
			Name: probeName, Namespace: namespace, Operation: admissionv1.Create, UserInfo: authenticationv1.UserInfo{Username: probeName},
			Object: runtime.RawExtension{Object: pod}, DryRun: new(true),
			Options: runtime.RawExtension{Raw: []byte(`{"apiVersion":"meta.k8s.io/v1","kind":"CreateOptions","dryRun":["All"]}`)},
		},
	}
}
