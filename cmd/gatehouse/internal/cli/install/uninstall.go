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
	"github.com/gatehouse-dev/gatehouse/internal/shell"
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
		Long: `Uninstall removes Gatehouse in an order in which nothing fails. It deletes the webhook
configurations first and waits until they are gone: from then on, nothing in the
cluster depends on Gatehouse. Then it deletes the Deployment and waits until its pods
have ended. Last, it deletes the objects that the pods created: the Secret with the
CA, the Leases of certificates and, with the last install in the namespace, the Leases
of reports and election. If a webhook configuration that may call Gatehouse remains,
nothing else is deleted, because the API server would reject requests.

Remove the rest with the tool that installed it: helm uninstall, or kubectl delete -k.
You can run uninstall before or after that, and again. The CustomResourceDefinitions,
and with them every SidecarProfile, policy and token, stay without
--custom-resources. The namespace stays.

A webhook configuration is deleted if the names of all its webhooks end in
gatehouse.dev and they call a Service in --namespace, or a URL. Another one of the same
name stays; delete it with kubectl if necessary.

With --registrations-only only the webhook configurations are deleted. The Helm chart
runs this before it deletes anything.

With --dry-run nothing is deleted; --dry-run=server makes the API server check each
deletion, which shows missing permissions.

If Gatehouse blocks the cluster and this command fails:
  kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration gatehouse

Exit codes: 0 removed; 1 an object stays because it does not belong to this install,
or you answered no; 2 an object could not be deleted or read, and each line shows the
command that deletes it.`,
		Example: `  # show what would be deleted
  gatehouse uninstall --dry-run

  # delete what Helm does not know, then the release
  gatehouse uninstall
  helm uninstall gatehouse -n gatehouse-system

  # delete everything, including profiles, policies and tokens
  gatehouse uninstall --custom-resources -y`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := f.check()
			if f.registrationsOnly && f.customResources {
				err = errors.Join(err, errors.New("--registrations-only and --custom-resources exclude each other"))
			}
			if err != nil {
				return err
			}
			config, err := f.Connect("--in-cluster in a pod")
			if err != nil {
				return err
			}
			config.QPS = -1 // how many requests there are is left to the API server
			client, err := dynamic.NewForConfig(config)
			if err != nil {
				return fmt.Errorf("no client for the API server: %w", err)
			}
			return f.run(cmd.Context(), client, config.Host, s)
		},
	}
	flags := cmd.Flags()
	f.add(cmd, "name of the install, which is the name of its webhook configurations and its Deployment", "namespace that Gatehouse runs in", defaultTimeout, "maximum time to wait")
	flags.BoolVar(&f.registrationsOnly, "registrations-only", false, "delete only the webhook configurations")
	flags.BoolVar(&f.customResources, "custom-resources", false, "also delete the CustomResourceDefinitions, and with them all custom resources of Gatehouse, of every install")
	cli.AddDryRunFlag(cmd, &f.dryRun)
	flags.BoolVarP(&f.yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

// installFlags are the flags of commands about an install in a cluster.
type installFlags struct {
	cli.ClusterFlags
	name, namespace string
	timeout         time.Duration
	output          string
}

// add adds the flags, with their usages.
func (f *installFlags) add(cmd *cobra.Command, name, namespace string, timeout time.Duration, timeoutUsage string) {
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", install.DefaultRegistration, name)
	flags.StringVarP(&f.namespace, "namespace", "n", install.DefaultNamespace, namespace)
	flags.DurationVar(&f.timeout, "timeout", timeout, timeoutUsage)
	f.Add(cmd)
	cli.AddOutputFlag(cmd, &f.output, "text", "json")
}

// check returns all errors of the flags.
func (f *installFlags) check() error {
	problems := cli.Problems{f.Check()}
	if wrong := validation.IsDNS1123Subdomain(f.name); len(wrong) > 0 {
		problems = append(problems, fmt.Errorf("--name %.100q: must be the name of an object: %s (hint: gatehouse)", f.name, wrong[0]))
	}
	if wrong := validation.IsDNS1123Label(f.namespace); len(wrong) > 0 {
		problems = append(problems, fmt.Errorf("--namespace %.100q: must be the name of a namespace: %s (hint: gatehouse-system)", f.namespace, wrong[0]))
	}
	problems.Add(f.timeout <= 0, "--timeout %s: must be more than 0s", cli.FormatDuration(f.timeout))
	return problems.Err()
}

// uninstallFlags are the flags of uninstall.
type uninstallFlags struct {
	installFlags
	registrationsOnly, customResources bool
	yes                                bool
	dryRun                             cli.DryRun

	// lag is registrationsLag except in tests.
	lag time.Duration
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
	if f.dryRun != cli.DryRunClient && u.hasFound() {
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
		return errors.New("nothing was removed: it needs a confirmation, and standard input is not a terminal (hint: --yes confirms, --dry-run shows what would be removed)")
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
		command += " --name " + shell.Quote(f.name)
	}
	if f.namespace != install.DefaultNamespace {
		command += " --namespace " + shell.Quote(f.namespace)
	}
	return command
}
