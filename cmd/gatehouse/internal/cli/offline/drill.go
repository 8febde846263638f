package offline

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/paging"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/replicas"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/drill"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// drillFlags are the flags of drill.
type drillFlags struct {
	manifestFlags
	cluster cli.ClusterFlags
	past    pastFlags
	output  string
	failOn  string
	// handshake asks pods for their certificates.
	handshake bool
	// explain is the code to explain, "" for none.
	explain string
}

// NewDrillCommand returns the command "gatehouse drill".
func NewDrillCommand(s cli.Streams) *cobra.Command {
	var f drillFlags
	cmd := &cobra.Command{
		Use:   "drill [--context NAME] | FILE|DIR... [-k DIR]...",
		Short: "Find out what stops in a cluster when a webhook does not answer",
		Long: `Drill rehearses the outage of every webhook of a cluster, whoever has installed it.
It makes the requests that a cluster needs to come back, such as pods in kube-system,
Leases of nodes, and the pods of the webhook itself, and decides for each as the API
server does, by rules, selectors and match conditions, whether the webhook must
answer it. It sends none of them, reads the cluster with your rights, and changes
nothing. With files, it judges these before they are installed.

  lockout  the cluster, or the webhook, does not come back by itself
  risk     an outage is more probable, longer or wider than it must be
  note     good to know

Each finding has a code: --explain CODE prints why it matters and what to do. With
-o dot or -o mermaid, drill draws what does not start without what. With --record or
--audit-log, it also says how many requests of the past would have failed, and whose.
'gatehouse manifests --drill' prints a role with the rights that drill needs.

Exit codes: 0 nothing as bad as --fail-on; 1 there is something; 2 wrong usage, or
something could not be read or decided, whatever else was found.`,
		Example: `  # the cluster of the current context
  gatehouse drill

  # what would this chart do to a cluster?
  helm template kyverno kyverno/kyverno | gatehouse drill -f -

  # a picture of what waits for what
  gatehouse drill --context prod -o dot | dot -Tsvg > drill.svg

  # what would an outage have cost in the worst hour of this log?
  gatehouse drill --audit-log /var/log/kubernetes/audit.log

  # what does this finding mean?
  gatehouse drill --explain own-pods`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed(explainFlag) {
				return f.explainCode(s.Out)
			}
			if err := f.check(); err != nil {
				return err
			}
			return f.run(cmd.Context(), s)
		},
	}
	f.command = cmd.Name()
	f.lenient = true
	addFiles(cmd, &f.files, &f.kustomizations, "manifests, or - for standard input, in place of a cluster")
	f.cluster.Add(cmd)
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", "default", "namespace of objects in files that do not name one")
	f.past.add(cmd)
	cmd.Flags().StringVar(&f.failOn, "fail-on", string(drill.Lockout), "lowest severity for which the exit code is 1: "+cli.OrList(severityNames()))
	cmd.Flags().BoolVar(&f.handshake, "handshake", false, "begin a TLS handshake with a pod of each webhook, to see whether caBundle verifies its certificate; needs the right to create pods/portforward")
	_ = cmd.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions(severityNames(), cobra.ShellCompDirectiveNoFileComp)) // the flag exists, here and below
	cmd.Flags().StringVar(&f.explain, explainFlag, "", "print what a code means and what to do")
	_ = cmd.RegisterFlagCompletionFunc(explainFlag, cobra.FixedCompletions(drillCodes(), cobra.ShellCompDirectiveNoFileComp))
	cli.AddOutputFlag(cmd, &f.output, "text", "json", "sarif", "dot", "mermaid")
	return cmd
}

func severityNames() (names []string) {
	for _, severity := range drill.Severities() {
		names = append(names, string(severity))
	}
	return names
}

func drillCodes() (names []string) {
	for _, code := range drill.Codes() {
		names = append(names, string(code))
	}
	return names
}

// explainCode writes what the code of --explain means.
func (f *drillFlags) explainCode(out io.Writer) error {
	text := drill.Explain(drill.Code(f.explain))
	if text == "" {
		hint := cmp.Or(diagnostic.DidYouMean(f.explain, drillCodes()...), "the codes are "+strings.Join(drillCodes(), ", "))
		return fmt.Errorf("--%s %q: is not the code of a finding (hint: %s)", explainFlag, f.explain, hint)
	}
	_, err := io.WriteString(out, text)
	return err
}

// readsFiles reports whether manifests are judged, and not a cluster.
func (f *drillFlags) readsFiles() bool { return len(f.files)+len(f.kustomizations) > 0 }

// check returns everything that is wrong with the flags.
func (f *drillFlags) check() error {
	errs := cli.Problems{f.cluster.Check(), f.past.check(time.Now())}
	errs.Add(f.cluster.Given() && f.readsFiles(), "files and a cluster cannot be given together (hint: without files, drill reads the cluster)")
	errs.Add(f.handshake && f.readsFiles(), "--handshake is for a cluster")
	errs.Add(!slices.Contains(drill.Severities(), f.threshold()), "--fail-on %q: must be %s", f.failOn, cli.OrList(severityNames()))
	return errs.Err()
}

func (f *drillFlags) threshold() drill.Severity { return drill.Severity(f.failOn) }

// run rehearses the outages.
func (f *drillFlags) run(ctx context.Context, s cli.Streams) error {
	c, o := drill.NewCluster(), drill.Options{Now: time.Now()}
	line := cli.NewLiveLine(s.Err)
	defer line.Clear()
	o.Progress = func(what string) { line.Show(func() string { return what }) }
	where, err := "", error(nil)
	if f.readsFiles() {
		where, err = f.addManifests(s, c)
	} else {
		where, err = f.addCluster(ctx, c, &o)
	}
	if err != nil {
		return err
	}
	d, err := drill.New(ctx, c)
	var unread []string
	if err == nil && f.past.given() {
		unread, err = f.past.judge(ctx, d, o.Progress)
	}
	if err != nil {
		return err
	}
	report, err := d.Run(ctx, o)
	line.Clear()
	if err != nil {
		return err
	}
	if f.readsFiles() && len(report.Subjects)+len(report.Unknown) == 0 {
		return fmt.Errorf("there is no webhook configuration in %s (hint: %s)", where, f.helmWords("CHART"))
	}
	report.Unknown = append(report.Unknown, unread...)
	return f.write(s.Out, report, where)
}

// addManifests adds the objects of files.
func (f *drillFlags) addManifests(s cli.Streams, c *drill.Cluster) (where string, err error) {
	sources, err := f.read(s.In)
	if err != nil {
		return "", err
	}
	f.writeSkipped(s.Err)
	for o := range objectsIn(sources) {
		err := unreadableError(o)
		if err == nil {
			err = c.Add(o.GroupVersionKind(), o.JSON(), drill.Place{File: o.File, Line: o.Line()})
		}
		if err != nil {
			c.Unread = append(c.Unread, o.Place()+": "+cli.Inert(err.Error()))
		}
	}
	return diagnostic.Count(len(sources), "file"), nil
}

// pageSize is how many objects the first page of a list has.
const pageSize = 50

// addCluster adds the objects of a cluster.
func (f *drillFlags) addCluster(ctx context.Context, c *drill.Cluster, o *drill.Options) (where string, err error) {
	access, err := f.cluster.Connect("name files to judge these")
	if err != nil {
		return "", err
	}
	access.UserAgent = "gatehouse/" + build.Version()
	client, err := rest.HTTPClientFor(access)
	if err != nil {
		return "", fmt.Errorf("connect to the API server: %w", err)
	}
	served, err := discovery.NewDiscoveryClientForConfigAndClient(access, client)
	if err != nil {
		return "", err
	}
	version, err := served.ServerVersionWithContext(ctx)
	if err != nil {
		return "", cmp.Or(apierr.Unreached(err), apierr.Explain("read the version of the API server", err))
	}
	if f.handshake {
		o.Served = func(ctx context.Context, namespace, pod string, port int, name string) ([]*x509.Certificate, error) {
			o.Progress("asking " + namespace + "/" + pod + " for its certificate")
			return replicas.Certificates(ctx, access, namespace, pod, port, name)
		}
	}
	c.Whole, c.Kubernetes = true, version.Major+"."+strings.TrimSuffix(version.Minor, "+")
	retries := &paging.Retries{Budget: time.Minute}
	for _, resource := range drill.Kinds() {
		o.Progress("reading " + resource.Resource)
		if err := readAll(ctx, access, client, resource, retries, c); err != nil {
			if ctx.Err() != nil {
				return "", context.Cause(ctx)
			}
			if unreached := apierr.Unreached(err); unreached != nil {
				return "", unreached
			}
			c.Unread = append(c.Unread, cli.Inert(apierr.Explain("read "+resource.GroupResource().String(), err).Error()))
		}
	}
	return "the cluster " + cli.InertName(access.Host), nil
}

// readAll adds all objects of a resource, page by page.
func readAll(ctx context.Context, access *rest.Config, client *http.Client, of schema.GroupVersionResource, retries *paging.Retries, c *drill.Cluster) error {
	access = rest.CopyConfig(access)
	access.GroupVersion, access.APIPath, access.NegotiatedSerializer = new(of.GroupVersion()), "/apis", scheme.Codecs.WithoutConversion()
	if of.Group == "" {
		access.APIPath = "/api"
	}
	typed, err := rest.RESTClientForConfigAndClient(access, client)
	if err != nil {
		return err
	}
	list := paging.List{Client: typed, Resource: of.Resource, Limit: pageSize, MaxLimit: 10 * pageSize, Retries: retries}
	err = list.Each(ctx, func(page paging.Page) error {
		for _, item := range page.Items {
			// The items of a list have no kind of their own.
			if err := c.AddOf(of.Resource, item, drill.Place{}); err != nil {
				c.Unread = append(c.Unread, cli.Inert(err.Error()))
			}
		}
		return nil
	})
	if apierrors.IsNotFound(err) {
		return nil // the API server does not have the kind
	}
	return err
}
