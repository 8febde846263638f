package install

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install"
)

const (
	// defaultTimeout bounds uninstall: the termination of pods takes up to a minute.
	defaultTimeout = 3 * time.Minute
	// registrationsLag is how long API servers may call webhooks whose configuration is
	// deleted, which they notice by a watch. The program must run until then.
	registrationsLag = 2 * time.Second
)

// NewUninstallCommand returns the command "gatehouse uninstall".
func NewUninstallCommand(s cli.Streams) *cobra.Command {
	f := uninstallFlags{lag: registrationsLag}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove Gatehouse from a cluster, registrations first",
		Long: `Uninstall removes the webhook configurations first, and waits until they are gone:
from then on nothing in the cluster depends on Gatehouse. Only then it removes the
Deployment, waits until its pods have ended, and removes what these made and no
installer knows: the Secret with the CA, and the Leases of certificates, and with
the last install of the namespace those of reports and election. While a webhook
configuration is left that may call Gatehouse, nothing else is removed, because what
it fails closed for would be refused.

The rest of the install is left to what installed it: helm uninstall, or kubectl
delete -k. It can be used before or after, and again: what is not there is fine.
The CustomResourceDefinitions, and with them every SidecarProfile, policy and
token, stay unless --custom-resources says otherwise. The namespace stays.

A webhook configuration is removed if all of its webhooks have names below
gatehouse.dev and call a Service in --namespace, or a URL. One of the same name that
is somebody else's is left; there is no flag to remove it, because that is one
command of kubectl.

With --registrations-only the webhook configurations alone are removed: this is what
the Helm chart runs before it deletes anything.

When nothing works any more, not even this:
  kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration gatehouse

Exit codes: 0 gone; 1 something was left because it is somebody else's, or the answer
to the question was no; 2 something could not be removed or looked at, and each line
says by which command it is.`,
		Example: `  # what would be removed
  gatehouse uninstall --dry-run

  gatehouse uninstall
  helm uninstall gatehouse -n gatehouse-system

  # all of it, with what people have configured
  gatehouse uninstall --custom-resources --yes`,
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
			config.QPS = -1 // how many requests there are is left to the API server
			client, err := dynamic.NewForConfig(config)
			if err != nil {
				return fmt.Errorf("the API server cannot be asked: %w", err)
			}
			return f.run(cmd.Context(), client, config.Host, s)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", install.DefaultRegistration, "name of the install: that of its webhook configurations and its Deployment")
	flags.StringVarP(&f.namespace, "namespace", "n", "gatehouse-system", "namespace that Gatehouse runs in")
	flags.BoolVar(&f.registrationsOnly, "registrations-only", false, "remove the webhook configurations and nothing else")
	flags.BoolVar(&f.customResources, "custom-resources", false, "remove the CustomResourceDefinitions too, and with them all custom resources of Gatehouse, of every install")
	cli.AddDryRunFlag(cmd, &f.dryRun)
	flags.BoolVarP(&f.yes, "yes", "y", false, "do not ask for confirmation")
	flags.DurationVar(&f.timeout, "timeout", defaultTimeout, "how long it may take")
	f.Add(cmd)
	cli.AddOutputFlag(cmd, &f.output, "text", "json")
	for _, name := range []string{"name", "namespace", "timeout"} {
		// The flags exist.
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	return cmd
}

// uninstallFlags are the flags of uninstall.
type uninstallFlags struct {
	cli.ClusterFlags
	name, namespace                    string
	registrationsOnly, customResources bool
	yes                                bool
	dryRun                             cli.DryRun
	timeout                            time.Duration
	output                             string

	// lag is registrationsLag except in tests.
	lag time.Duration
}

// check returns all errors of the flags.
func (f *uninstallFlags) check() error {
	var problems []error
	if f.output != "text" && f.output != "json" {
		problems = append(problems, cli.OutputError(f.output, "text", "json"))
	}
	if err := f.Check(); err != nil {
		problems = append(problems, err)
	}
	if wrong := validation.IsDNS1123Subdomain(f.name); len(wrong) > 0 {
		problems = append(problems, fmt.Errorf("--name %.100q: is no name of an object: %s (hint: gatehouse)", f.name, wrong[0]))
	}
	if wrong := validation.IsDNS1123Label(f.namespace); len(wrong) > 0 {
		problems = append(problems, fmt.Errorf("--namespace %.100q: is no name of a namespace: %s (hint: gatehouse-system)", f.namespace, wrong[0]))
	}
	if f.registrationsOnly && f.customResources {
		problems = append(problems, errors.New("--registrations-only and --custom-resources exclude each other"))
	}
	if f.timeout <= 0 {
		problems = append(problems, fmt.Errorf("--timeout %s: must be more than 0s", cli.FormatDuration(f.timeout)))
	}
	return errors.Join(problems...)
}

// uninstallReport is the JSON output of uninstall.
type uninstallReport struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	DryRun    bool   `json:"dryRun"`
	// Parts are the objects that were found, in the order of their removal.
	Parts []*uninstallPart `json:"parts"`
}

// run finds the parts, asks for confirmation, removes and reports them. The host is for
// the question.
func (f *uninstallFlags) run(ctx context.Context, client dynamic.Interface, host string, s cli.Streams) error {
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("gave up after --timeout %s", cli.FormatDuration(f.timeout)))
	defer cancel()
	u := uninstaller{flags: f, client: client, kubectl: f.command()}
	u.survey(ctx)
	u.hold(programStage, leftoversStage)
	if f.dryRun != cli.DryRunClient && u.toRemove() > 0 {
		if err := f.confirm(&u, host, s); err != nil {
			return err
		}
		u.remove(ctx)
	}
	if f.output == "json" {
		report := uninstallReport{Name: f.name, Namespace: f.namespace, DryRun: f.dryRun.Active(), Parts: u.parts}
		if report.Parts == nil {
			report.Parts = []*uninstallPart{} // nothing is no null
		}
		return errors.Join(cli.WriteJSONLine(s.Out, report), u.err())
	}
	_, err := io.WriteString(s.Out, u.text())
	return errors.Join(err, u.err())
}

// command returns the kubectl command for the cluster of the flags.
func (f *uninstallFlags) command() string {
	if f.InCluster {
		return "kubectl" // for somebody who is not in the pod
	}
	return "kubectl" + f.Words()
}

// confirm asks for confirmation unless there is --yes or a dry run.
func (f *uninstallFlags) confirm(u *uninstaller, host string, s cli.Streams) error {
	if f.yes || f.dryRun.Active() {
		return nil
	}
	if !cli.IsTerminalInput(s.In) {
		return errors.New("nothing was removed: there is nobody to ask, because standard input is no terminal (hint: --dry-run shows what would be removed, and --yes removes it)")
	}
	plan := u.text()
	if err := u.err(); err != nil {
		plan += cli.ErrorText(err)
	}
	_, err := fmt.Fprintf(s.Err, "%sRemove these from the cluster of %s? [y/N] ", plan, cli.OneLine(host))
	if err != nil {
		return err
	}
	answer, err := bufio.NewReader(s.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	default:
		return &cli.ExitError{Code: cli.ExitNo, Err: errors.New("nothing was removed")}
	}
}

// again returns this command, for a hint.
func (f *uninstallFlags) again() string {
	command := cli.DisplayName(os.Args[0]) + " uninstall"
	if f.name != install.DefaultRegistration {
		command += " --name " + f.name
	}
	if f.namespace != "gatehouse-system" {
		command += " --namespace " + f.namespace
	}
	return command
}
