// Package attack tests Gatehouse under attack by clients without a certificate: the built program, with the memory limit
// of the chart, must go on answering ordinary reviews.
package attack
