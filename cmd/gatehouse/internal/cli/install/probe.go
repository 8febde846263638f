package install

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	certutil "k8s.io/client-go/util/cert"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install/webhookcall"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/patherr"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
	"github.com/gatehouse-dev/gatehouse/webhooks"
)

const (
	// probeTimeout is how long probe tries by default.
	probeTimeout = 30 * time.Second
	// probeInterval is the pause between two attempts.
	probeInterval = time.Second
)

// NewProbeCommand returns the command "gatehouse probe".
func NewProbeCommand(s cli.Streams) *cobra.Command {
	var f probeFlags
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Check that the webhooks answer, as the API server calls them",
		Long: `Probe sends a review to each webhook in the webhook configurations of an install, as the
API server does: to the cluster IP of the Service, with TLS, for the name of the
Service, and it trusts only the caBundle of that webhook. The review is a dry run of a
request that the webhook is registered for: the creation of a pod in --namespace if that
is one. Nothing is created. A denial by a policy is an answer.

Run it where the addresses of Services can be reached: in a pod or on a node. The Helm
chart runs it for helm test. It needs the rights to get both webhook configurations and
the Service.

With --url it asks no API server: it sends the review to both admission endpoints of a
server outside of the cluster, and trusts --ca-file.

It tries again until every webhook answers, for --timeout.

It warns if Gatehouse asks for no client certificate, so that API servers cannot show one:
without it they compete with strangers for memory and connections. Whether they show one
if they are asked is not to be seen from here.

Exit codes: 0 every webhook answers; 1 a webhook does not answer, or with a certificate
that its caBundle does not verify; 2 the webhook configurations or the Service cannot be
read.`,
		Example: `  # in a pod
  gatehouse probe --in-cluster

  # on a node
  gatehouse probe --kubeconfig /etc/kubernetes/admin.conf

  # a server without a cluster
  gatehouse probe --url https://127.0.0.1:9443 --ca-file ./gatehouse-certs/ca.crt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(f.check(), f.checkURL(cmd.Flags().Changed("url"))); err != nil {
				return err
			}
			if cmd.Flags().Changed("url") {
				return f.run(cmd.Context(), nil, s)
			}
			config, err := f.Connect("--in-cluster in a pod, or --url for a server without a cluster")
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
	f.add(cmd, "name of the webhook configurations", "namespace of the object in the review", probeTimeout, "how long to try until every webhook answers")
	cmd.Flags().StringVar(&f.url, "url", "", "server to call in place of the webhooks of a cluster, https://HOST[:PORT]")
	cmd.Flags().StringVar(&f.caFile, "ca-file", "", "PEM file with the CAs that verify the certificate of --url (default the CAs of this machine)")
	_ = cmd.MarkFlagFilename("ca-file") // the flags exist
	return cmd
}

// probeFlags are the flags of probe.
type probeFlags struct {
	installFlags
	// url is the address of a server without a cluster, and caFile has the CAs that verify it.
	url, caFile string

	target   *url.URL
	caBundle []byte
}

// checkURL returns what is wrong with --url and --ca-file, and reads the file.
func (f *probeFlags) checkURL(given bool) (err error) {
	if !given {
		if f.caFile != "" {
			return errors.New("--ca-file is for --url: the webhook configurations of a cluster have a caBundle")
		}
		return nil
	}
	if f.Given() {
		err = errors.New("--url excludes --in-cluster, --kubeconfig and --context: it asks no API server")
	}
	target, invalid := url.Parse(f.url)
	if invalid != nil || target.Scheme != "https" || target.Hostname() == "" || target.User != nil || strings.Trim(target.Path, "/") != "" || target.RawQuery != "" {
		return errors.Join(err, fmt.Errorf("--url %.200q: must be https://HOST or https://HOST:PORT (hint: https://127.0.0.1:9443)", f.url))
	}
	f.target = target
	if f.caFile != "" {
		content, failed := os.ReadFile(f.caFile)
		if failed != nil {
			return errors.Join(err, fmt.Errorf("--ca-file: %s: %w", f.caFile, patherr.Cause(failed)))
		}
		if _, failed := certutil.ParseCertsPEM(content); failed != nil {
			return errors.Join(err, fmt.Errorf("--ca-file: %s has no certificate in PEM", f.caFile))
		}
		f.caBundle = content
	}
	return err
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
	// Warning is set if it asks for no client certificate.
	Warning string `json:"warning,omitempty"`
}

// noClientCertificate is the warning about servers without --client-ca.
const noClientCertificate = "Gatehouse asks for no client certificate, so that API servers compete with strangers for memory and connections (hint: set --client-ca, in the chart authentication.clientCASecret, and give API servers a certificate, see docs/certificates.md#client-certificates-on-admission)"

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
	warned := false
	for _, r := range results {
		if !r.Answered {
			continue
		}
		if _, failed := fmt.Fprintln(s.Out, r); failed != nil {
			return failed
		}
		warned = warned || r.Warning != ""
	}
	if warned {
		if _, failed := fmt.Fprintln(s.Err, "warning:", noClientCertificate); failed != nil {
			return failed
		}
	}
	return err
}

// attempt calls every webhook once. The results are nil if the webhooks cannot be read.
func (f *probeFlags) attempt(ctx context.Context, client certs.Client) ([]*probeResult, error) {
	calls, err := f.calls(ctx, client)
	if err != nil {
		return nil, err
	}
	results := make([]*probeResult, len(calls))
	var problems []error
	for i := range calls {
		results[i] = f.send(ctx, &calls[i])
		if !results[i].Answered {
			problems = append(problems, fmt.Errorf("%s: %s does not answer: %s", results[i].Configuration, results[i].Webhook, results[i].Message))
		}
	}
	if len(problems) > 0 {
		return results, &cli.ExitError{Code: cli.ExitNo, Err: errors.Join(problems...)}
	}
	return results, nil
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

// send calls a webhook and returns its answer.
func (f *probeFlags) send(ctx context.Context, c *webhookcall.Call) *probeResult {
	r := &probeResult{Configuration: c.Configuration, Webhook: c.Webhook}
	response, err := c.Send(ctx, probeReview(c.Rules, f.namespace), func(timeout time.Duration) error {
		return fmt.Errorf("no answer within %s, the timeout of the webhook", cli.FormatDuration(timeout))
	})
	if err != nil {
		r.Message = cli.OneLine(err.Error())
		return r
	}
	r.Answered, r.Allowed = true, response.Allowed
	if c.Handshake(ctx) == nil && !c.AsksForCertificate() {
		r.Warning = noClientCertificate
	}
	if response.Result != nil {
		r.Message = cli.OneLine(response.Result.Message)
	}
	return r
}
