package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/build"
)

// NewVersionCommand returns the command "gatehouse version".
func NewVersionCommand(s Streams) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of Gatehouse and its Kubernetes libraries",
		Example: `  gatehouse version
  gatehouse version -o json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version    string `json:"version"`
				Go         string `json:"go"`
				Platform   string `json:"platform"`
				Kubernetes string `json:"kubernetes"`
				CEL        string `json:"cel"`
			}{build.Version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, build.ModuleVersion("k8s.io/apiserver"), build.ModuleVersion("github.com/google/cel-go")}
			switch output {
			case "json":
				return WriteJSONLine(s.Out, v)
			case "text":
				_, err := fmt.Fprintf(s.Out, "gatehouse %s (%s, %s; k8s.io/apiserver %s, cel-go %s)\n", v.Version, v.Go, v.Platform, v.Kubernetes, v.CEL)
				return err
			default:
				return OutputError(output, "text", "json")
			}
		},
	}
	AddOutputFlag(cmd, &output, "text", "json")
	return cmd
}
