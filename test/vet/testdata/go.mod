module github.com/nodelvm/nodelvm/faults

go 1.26.0
