// Package groupsource checks the configuration of group sources, and reads their answers. It sends no requests.
package groupsource
