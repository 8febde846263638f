package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// released is set by the linker in builds of a release.
//
//nolint:gochecknoglobals // the linker can set nothing else
var released string

// version is the program's version: the release, or else what the Go toolchain
// recorded of the module.
func version() string {
	if released != "" {
		return released
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func newVersionCommand(s streams) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program and of the Kubernetes libraries in it",
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
			}{version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, moduleVersion("k8s.io/apiserver"), moduleVersion("github.com/google/cel-go")}
			switch output {
			case "json":
				return json.NewEncoder(s.out).Encode(v)
			case "text":
				_, err := fmt.Fprintf(s.out, "gatehouse %s (%s, %s; k8s.io/apiserver %s, cel-go %s)\n", v.Version, v.Go, v.Platform, v.Kubernetes, v.CEL)
				return err
			default:
				return outputError(output, "text", "json")
			}
		},
	}
	addOutputFlag(cmd, &output, "text", "json")
	return cmd
}

// moduleVersion is the version of a module that this program was built with.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, module := range info.Deps {
		if module.Path == path {
			return module.Version
		}
	}
	return "unknown"
}
