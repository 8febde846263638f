// Package build knows the version of this program and of the modules in it.
package build

import "runtime/debug"

// released is set by the linker in builds of a release.
//
//nolint:gochecknoglobals // the linker can set nothing else
var released string

// Version returns the version of the program: that of the release, or else the one that the Go toolchain recorded.
func Version() string {
	if released != "" {
		return released
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// ModuleVersion returns the version of a module that this program was built with.
func ModuleVersion(path string) string {
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
