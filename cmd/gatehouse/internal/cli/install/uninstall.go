package install

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/replicas"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// registrationsLag is how long API servers may call webhooks whose configuration is deleted, which they notice by a watch. The
// server must run until then.
const registrationsLag = 2 * time.Second

// NewUninstallCommand returns the command "gatehouse uninstall".
func NewUninstallCommand(s cli.Streams) *cobra.Command {
	f := uninstallFlags{lag: registrationsLag}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Delete the webhook configurations, before you remove Gatehouse",
		Long: `Uninstall deletes both webhook configurations of an install, and waits until no API
server calls Gatehouse any more. Run it before you remove the server, because a
webhook without its server can block requests. The Helm chart runs it by itself.
Uninstall deletes nothing if a webhook belongs to another program, or calls a
Service outside of --namespace. At the end it names the pods of Gatehouse in
--namespace that still run.

If Gatehouse blocks the cluster and this command fails:

  kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration gatehouse

Exit codes: 0 deleted, or there was nothing to delete; 1 a webhook does not belong
to this install, or you answered no; 2 a configuration could not be deleted or read.`,
		Example: `  # what kubectl apply installed
  gatehouse uninstall && kubectl delete -f install.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			config, err := f.Connect("--in-cluster in a pod")
			if err != nil {
				return err
			}
			client, err := dynamic.NewForConfig(config)
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), client, config.Host, s)
		},
	}
	f.add(cmd, "name of the webhook configurations", "namespace that Gatehouse runs in", 3*time.Minute, "maximum time to wait")
	cli.AddDryRunFlag(cmd, &f.dryRun)
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

// uninstallFlags are the flags of uninstall.
type uninstallFlags struct {
	installFlags

	yes    bool
	dryRun bool
	// lag is registrationsLag except in tests.
	lag time.Duration
}

// deletion is a webhook configuration that is to be deleted.
type deletion struct {
	kind   string
	uid    types.UID
	client dynamic.ResourceInterface
}

// run finds the configurations, asks with the host, and deletes them.
func (f *uninstallFlags) run(ctx context.Context, client dynamic.Interface, host string, s cli.Streams) error {
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("gave up after --timeout %s", cli.FormatDuration(f.timeout)))
	defer cancel()
	found, err := f.find(ctx, client)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		_, err := fmt.Fprintf(s.Out, "nothing to delete: no webhook configuration %q\n", f.name)
		return err
	}
	if !f.dryRun {
		if err := f.confirm(found, host, s); err != nil {
			return err
		}
	}
	for _, d := range found {
		verb := map[bool]string{false: "deleted", true: "would delete"}[f.dryRun]
		if err := f.delete(ctx, d); err != nil {
			return fmt.Errorf("%s/%s may remain: %w (hint: kubectl%s delete %s %s)", d.kind, f.name, err, f.Words(), strings.ToLower(d.kind), shell.Quote(f.name))
		}
		if _, err := fmt.Fprintf(s.Out, "%s %s/%s\n", verb, d.kind, f.name); err != nil {
			return err
		}
	}
	if f.dryRun {
		return nil
	}
	sleep.Context(ctx, f.lag)
	for _, d := range found {
		if _, err := d.client.Get(ctx, f.name, metav1.GetOptions{}); err == nil {
			return fmt.Errorf("%s/%s was created again, for example by a GitOps controller: stop that first", d.kind, f.name)
		}
	}
	if running := f.running(ctx, client); running != "" {
		_, err = fmt.Fprintf(s.Out, "still running in namespace %s, and called by no API server any more: %s\n", f.namespace, running)
	}
	return err
}

// running returns the names of the pods of the servers that run, "" if there are none or they cannot be listed: they are a remark.
func (f *uninstallFlags) running(ctx context.Context, client dynamic.Interface) string {
	list, err := client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(f.namespace).List(ctx, metav1.ListOptions{LabelSelector: replicas.Selector})
	if err != nil {
		return ""
	}
	const most = 10
	var names []string
	for i := range list.Items {
		if list.Items[i].GetDeletionTimestamp() == nil {
			names = append(names, list.Items[i].GetName())
		}
	}
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// find returns the configurations, of which each must belong to the install.
func (f *uninstallFlags) find(ctx context.Context, client dynamic.Interface) ([]deletion, error) {
	var found []deletion
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		d := deletion{kind: kind, client: client.Resource(admissionregistrationv1.SchemeGroupVersion.WithResource(strings.ToLower(kind) + "s"))}
		object, err := d.client.Get(ctx, f.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("nothing was deleted: %w", cmp.Or(apierr.Unreached(err), err))
		}
		var config admissionregistrationv1.ValidatingWebhookConfiguration // both kinds have these fields
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &config); err != nil {
			return nil, fmt.Errorf("nothing was deleted: %w", err)
		}
		for i := range config.Webhooks {
			w := &config.Webhooks[i]
			isOther := w.ClientConfig.Service != nil && w.ClientConfig.Service.Namespace != f.namespace
			if isOther || !strings.HasSuffix(w.Name, "."+v1alpha1.GroupVersion.Group) {
				return nil, &cli.ExitError{Code: cli.ExitNo, Err: fmt.Errorf("nothing was deleted: the webhook %q of %s/%s does not belong to Gatehouse in the namespace %s (hint: --name and --namespace)", w.Name, kind, f.name, f.namespace)}
			}
		}
		d.uid = object.GetUID()
		found = append(found, d)
	}
	return found, nil
}

// confirm asks for confirmation unless there is --yes.
func (f *uninstallFlags) confirm(found []deletion, host string, s cli.Streams) error {
	if f.yes {
		return nil
	}
	if !cli.IsTerminalInput(s.In) {
		return errors.New("nothing was deleted: it needs a confirmation, and standard input is not a terminal (hint: --yes confirms, --dry-run shows what would be deleted)")
	}
	if _, err := fmt.Fprintf(s.Err, "Delete %d webhook configurations %q from the cluster of %s? [y/N] ", len(found), f.name, cli.OneLine(host)); err != nil {
		return err
	}
	answer, _ := bufio.NewReader(s.In).ReadString('\n') // an answer that ends early is no
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return &cli.ExitError{Code: cli.ExitNo, Err: errors.New("nothing was deleted")}
	}
	return nil
}

// delete deletes the configuration that was found and no other one of its name, and waits until it is gone. A dry run deletes nothing.
func (f *uninstallFlags) delete(ctx context.Context, d deletion) error {
	if f.dryRun {
		return nil
	}
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &d.uid}}
	if err := d.client.Delete(ctx, f.name, options); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	for {
		object, err := d.client.Get(ctx, f.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && object.GetUID() != d.uid: // one that was created again is found later
			return nil
		case apierrors.IsForbidden(err):
			return err
		case !sleep.Context(ctx, 200*time.Millisecond):
			return fmt.Errorf("its deletion was requested and has not ended: %w", context.Cause(ctx))
		}
	}
}
