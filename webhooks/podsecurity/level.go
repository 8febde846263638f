// Package podsecurity evaluates the Pod Security Standards with the checks of the API server's own PodSecurity plug-in.
//
// The API server can decide otherwise, because three things are not known here: its AdmissionConfiguration, which may
// enforce a level in namespaces without a label, and exempt namespaces, users and runtime classes; its version, by which
// it interprets "latest" and versions newer than itself (this package uses the version of its library); and changes by
// admission plug-ins that run later.
package podsecurity

import (
	podsecurityapi "k8s.io/pod-security-admission/api"
)

// Level is a Pod Security Standard in one version. The zero value is privileged,
// which allows every pod.
type Level struct {
	standard podsecurityapi.LevelVersion
}

// OfNamespace returns the level that the labels of a namespace enforce:
// pod-security.kubernetes.io/enforce and enforce-version. As in the API server,
// a level that does not exist is restricted, and a version that does not exist
// is the latest. That happens: the API server refuses such labels only when they
// are written, and a namespace may be older than the plug-in that refuses them.
func OfNamespace(labels map[string]string) Level {
	name, labelled := labels[podsecurityapi.EnforceLevelLabel]
	if !labelled {
		return Level{}
	}
	level, _, _ := Parse(name, labels[podsecurityapi.EnforceVersionLabel])
	return level
}

// Parse reads the name of a level, which is privileged, baseline or restricted,
// and a version, which is latest or v1.NN; "" is latest. Of a name that is
// neither it says so, and takes what the API server takes: restricted, and the
// latest version.
func Parse(name, version string) (level Level, nameKnown, versionKnown bool) {
	standard := podsecurityapi.LevelVersion{Version: podsecurityapi.LatestVersion()}
	var nameErr, versionErr error
	standard.Level, nameErr = podsecurityapi.ParseLevel(name)
	if version != "" {
		standard.Version, versionErr = podsecurityapi.ParseVersion(version)
	}
	return Level{standard: standard}, nameErr == nil, versionErr == nil
}

// Enforces reports whether there is a pod that the level refuses. It is false for
// privileged.
func (l Level) Enforces() bool {
	return l.standard.Level != "" && l.standard.Level != podsecurityapi.LevelPrivileged
}

// Name returns the name of the standard, which is also that of kubectl's profile for containers that it admits.
func (l Level) Name() string { return string(l.standard.Level) }

// String returns the level as the API server writes it in its messages:
// "restricted:v1.30".
func (l Level) String() string {
	if l == (Level{}) {
		return string(podsecurityapi.LevelPrivileged) + ":" + podsecurityapi.LatestVersion().String()
	}
	return l.standard.String()
}
