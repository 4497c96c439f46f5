/* What Python calls: the loop over the parts of a batch, one part a thread. `walk` stands before. */
typedef struct {
    const float *z_at; const int8_t *y_at; float *slope_at;
    int64_t first, last, columns; float scale; const float *c; void *const *t; double sum;
} part;

static void *work(void *given)
{
    part *p = given;
    if (p->slope_at)
        p->sum = walk(p->z_at, p->y_at, p->slope_at, p->first, p->last, p->columns, p->scale,
                      p->c, p->t, 1);
    else
        p->sum = walk(p->z_at, p->y_at, 0, p->first, p->last, p->columns, p->scale, p->c, p->t, 0);
    return 0;
}

double run(
    const float *z_at, const int8_t *y_at, float *slope_at, int64_t count, int64_t columns,
    double scale, const float *c, void *const *t, int64_t hands)
{
    part parts[MOST];
    pthread_t threads[MOST];
    int started[MOST];
    double sum = 0;
    for (int64_t i = 0; i < hands; i++) {
        part one = {z_at, y_at, slope_at, count * i / hands, count * (i + 1) / hands, columns,
                    scale, c, t, 0};
        parts[i] = one;
    }
    for (int64_t i = 1; i < hands; i++)
        started[i] = !pthread_create(&threads[i], 0, work, &parts[i]);
    work(&parts[0]);
    for (int64_t i = 1; i < hands; i++) {
        if (started[i]) pthread_join(threads[i], 0);
        else work(&parts[i]);
    }
    for (int64_t i = 0; i < hands; i++) sum += parts[i].sum;
    return sum;
}
