package offline

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// NewUninjectCommand returns the command "gatehouse uninject".
func NewUninjectCommand(s cli.Streams) *cobra.Command {
	var f changeFlags
	cmd := &cobra.Command{
		Use:   "uninject [FILE|DIR]... [-k DIR]...",
		Short: "Remove sidecars from the pods in manifests",
		Long: `Uninject removes from the pods in manifests what inject or the server added:
everything that the annotation sidecar.gatehouse.dev/status lists, and the
annotation. Use it before you inject again, or for a copy of a pod that runs.

It reads and prints manifests as inject does. It needs no configuration, unless a
PolicyConfiguration lists your own kinds of workloads.

Exit codes: 0 done, whether or not something changed; 2 wrong usage or input, and
nothing is printed or written.`,
		Example: `  gatehouse uninject deploy/ -i

  # a copy of what runs, without its sidecars
  kubectl get deployment checkout -o yaml | gatehouse uninject`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			return f.uninject(s)
		},
	}
	f.add(cmd)
	cli.AddConfigFlag(cmd, &f.config, "directory with a PolicyConfiguration that lists further kinds of workloads")
	return cmd
}

// uninject takes out of every pod what its status annotation lists.
func (f *changeFlags) uninject(s cli.Streams) error {
	var configured []workload.Kind
	if f.config != "" {
		c, _ := config.Inspect(f.config) // other errors do not matter here
		configured = workload.FromAPI(c.Workloads())
	}
	sources, err := f.read(s.In, configured...)
	if err != nil {
		return err
	}
	f.writeSkipped(f.notes(s))
	var changed changes
	log := &changed.log
	for o := range objectsIn(sources) {
		if o.NoPod != "" {
			log.addNoPod(o)
			continue
		}
		removal, err := sidecar.Remove(f.sidecarInput(o).Request.Object.Raw)
		if err == nil {
			err = o.Apply(removal.Patches)
		}
		switch {
		case err != nil:
			changed.fail(o, err)
		case len(removal.Patches) == 0:
			log.add(o, "left as it is: nothing was injected")
		default:
			log.add(o, "removed: %s", strings.Join(removal.Profiles, ", "))
		}
		for _, left := range removal.Left {
			log.add(o, "note: %s was removed before", left)
		}
	}
	if err := changed.err(); err != nil {
		return err
	}
	return f.finish(s, sources, log)
}
