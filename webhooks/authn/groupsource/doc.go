// Package groupsource checks the configuration of group sources, and reads their answers. It
// asks nobody.
package groupsource
