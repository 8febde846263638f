package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/internal/build"
)

// NewVersionCommand returns the command "gatehouse version".
func NewVersionCommand(s Streams) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of Gatehouse and its Kubernetes libraries",
		Example: `  gatehouse version
  gatehouse version -o json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := versions()
			if output == "json" {
				return WriteJSONLine(s.Out, v)
			}
			_, err := fmt.Fprintln(s.Out, v)
			return err
		},
	}
	AddOutputFlag(cmd, &output, "text", "json")
	return cmd
}

// versionReport is the output of "gatehouse version" for programs.
type versionReport struct {
	Version    string `json:"version"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	Kubernetes string `json:"kubernetes"`
	CEL        string `json:"cel"`
}

func versions() versionReport {
	return versionReport{
		build.Version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH,
		build.ModuleVersion("k8s.io/apiserver"), build.ModuleVersion("github.com/google/cel-go"),
	}
}

// String returns the versions on a line.
func (v versionReport) String() string {
	return fmt.Sprintf("gatehouse %s (%s, %s; k8s.io/apiserver %s, cel-go %s)", v.Version, v.Go, v.Platform, v.Kubernetes, v.CEL)
}
