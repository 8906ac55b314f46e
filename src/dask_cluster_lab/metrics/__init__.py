"""Metrics of one's own on a Dask cluster, small enough to take home.

``labels``     which labels there may be, and the guard that refuses all others
``survey``     the pipeline that is watched: 400 tiles, four stages, one gate
``work``       counting one unit of work, and the plugin that brings this to all workers
``totals``     exact totals of a run, kept by the scheduler, whatever becomes of workers
``manifest``   those totals as a file that outlives every metric
``push``       what a job leaves in a Pushgateway, and takes away again
``prometheus`` asking a Prometheus server
"""
