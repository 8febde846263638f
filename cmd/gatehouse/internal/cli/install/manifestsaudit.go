package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install/registration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/config/resolve"
)

// auditRights returns the rights of audits as text, and notes.
func (f *manifestsFlags) auditRights(ctx context.Context) (text []byte, notes []string, err error) {
	from := "the active policies of the cluster"
	c, served, err := f.audited(ctx)
	if err != nil {
		return nil, nil, err
	}
	if f.config != "" {
		from = "the policies in " + cli.InertName(f.config)
		if f.cluster.Given() {
			from += " and the active ones of the cluster"
		}
	}
	if resolve.Deciding(c) == 0 {
		return nil, nil, fmt.Errorf("nothing would be audited by %s: no policy and no profile is active (hint: --config DIR or --context NAME; a policy needs validationActions or a binding)", from)
	}
	names := registration.Options{Name: f.name, Namespace: cmp.Or(f.namespace, install.DefaultNamespace), ServiceAccount: f.serviceAccount}
	rights, err := registration.ForAudit(names, audit.Rights(c, served))
	if err != nil {
		return nil, nil, err
	}
	if served == nil {
		notes = append(notes, "what policies match by wildcards is left out (hint: --context NAME, to ask the API server what it serves)")
	}
	text, err = registration.YAML(fmt.Sprintf(`Made by "gatehouse manifests --audit" from %s, for "gatehouse serve --audit-every 1h".`, from), []registration.Document{rights})
	return text, notes, err
}

// audited returns the configuration, and what the API server serves, nil without one.
func (f *manifestsFlags) audited(ctx context.Context) (*config.Config, *audit.Served, error) {
	if f.config != "" && !f.cluster.Given() {
		c, err := loadConfig(f.config)
		return c, nil, err
	}
	flags := cli.SourceFlags{ClusterFlags: f.cluster, WithCluster: f.config != ""}
	source, err := flags.Open(ctx, f.config)
	if err != nil {
		return nil, nil, err
	}
	defer source.Close()
	loaded, err := source.Load(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	served, err := audit.Discover(ctx, source.Access)
	if err != nil {
		return nil, nil, source.Explain(err)
	}
	problems := source.Unread(loaded)
	if err := loaded.Found.Err(); err != nil {
		problems = append(problems, err)
	}
	problems = append(problems, audit.Unknown(loaded.Config, served)...)
	if len(problems) > 0 {
		// Applied, rights that lack some would narrow a role that has them.
		return nil, nil, fmt.Errorf("nothing is printed, because rights would be missing (hint: gatehouse lint, and kubectl auth whoami):\n%w", errors.Join(problems...))
	}
	return loaded.Config, served, nil
}
